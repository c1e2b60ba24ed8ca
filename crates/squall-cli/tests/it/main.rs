//! The real program against real servers: exit codes, accounting, outputs, stopping, refusals. One binary, short tests that run in
//! parallel; what has to be waited for is waited for, never slept on.

mod bad_input;
mod comparing;
mod counts;
mod deploy;
mod exit_codes;
mod faults;
mod find_max;
mod fleet;
mod help;
mod hostile;
mod http_flags;
mod omission;
mod outputs;
mod scaffold;
mod serving;
mod stopping;
mod support;
mod terminal;
mod up_down;
