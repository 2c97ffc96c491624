"""Labels of people: which items are worth one, the file that keeps them, and the numbers that they correct."""
