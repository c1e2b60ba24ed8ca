//! The squall command.
