"""The lab: checks the metrics themselves, by validation and by labels of people. Only floor 10 imports it."""
