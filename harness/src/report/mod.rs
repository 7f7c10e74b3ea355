//! Prints an analysis: Markdown, plots, terminal. Decides nothing, holds no threshold.
