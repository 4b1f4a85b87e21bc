"""Decides which pod template a resource runs: the one just rendered, the one it has, or the last one that was ready.

A template changes for three reasons. The user changes the spec: it is written at once. Its pods do not start: Auto goes
back to the last revision whose pods were all ready, as `kubectl rollout undo` does by hand. The operator changes (another
default image, other user ids, another version that renders differently): the pods stay until `rollout.upgradePolicy`
lets them move, so that no upgrade of the chart restarts a fleet by surprise.
"""
