//! Schedules, executors, virtual users and drain; the Driver trait.
