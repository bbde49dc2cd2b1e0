//! The work on one task, step by step.
