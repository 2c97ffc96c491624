"""Judges of entailment: does one answer follow from another?"""
