"""The lab: measures the measures. Validation of metrics and labels of people; nothing below or beside it imports it."""
