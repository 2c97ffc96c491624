"""The conventions that are understood, in the order in which a span's kind is looked for."""

from ragguard.traces.conventions.genai import GENAI
from ragguard.traces.conventions.langfuse import LANGFUSE
from ragguard.traces.conventions.mlflow import MLFLOW
from ragguard.traces.conventions.openinference import OPENINFERENCE
from ragguard.traces.conventions.openllmetry import OPENLLMETRY

CONVENTIONS = (OPENINFERENCE, LANGFUSE, MLFLOW, GENAI, OPENLLMETRY)
