//! `squall compare`: reads two results and prints what the report room says about them.

use crate::{args::CompareArgs, exit::Refusal};

pub(crate) fn compare(args: &CompareArgs) -> Result<u8, Refusal> {
    let _ = args;
    Err(Refusal::new("not built yet"))
}
