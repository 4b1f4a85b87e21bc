"""The admission dial: bounds per engine and the report of rejected requests."""
