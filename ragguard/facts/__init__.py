"""The facts about a scored run, each decided once, for everything that shows, stores or compares runs.

Pure: nothing here reads a file, asks a model or knows a printer.
"""
