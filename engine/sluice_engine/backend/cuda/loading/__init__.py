"""How weights get from files to the device."""
