//! The files that the options of `squall cql` name: lists of nodes, credentials and user profiles. It
//! connects to nothing.

use squall_cql::{ConnectionMode, NodeAddress, NodeList, StressOperation, parse_node_file};
use squall_scenario::read_input_text;
use std::path::{Path, PathBuf};

use crate::{bundle::ProfileFile, exit::CliError};

/// The listed nodes, from `-node a,b` or from the file of `-node file=`.
pub(super) fn read_nodes(nodes: &NodeList) -> Result<Vec<NodeAddress>, CliError> {
    match nodes {
        NodeList::Listed(nodes) => Ok(nodes.clone()),
        NodeList::File(path) => {
            parse_node_file(&read(path)?).map_err(|reason| CliError::new(format!("{}: {reason}", path.display())))
        }
    }
}

/// The files of `profile=`, in its order.
pub(super) fn read_profiles(operation: &StressOperation) -> Result<Vec<ProfileFile>, CliError> {
    let StressOperation::User { profiles: paths, .. } = operation else { return Ok(Vec::new()) };
    let file = |path: &PathBuf| Ok(ProfileFile { path: path.display().to_string(), text: read(path)? });
    paths.iter().map(file).collect()
}

/// Takes user and password from `-credentials-file`, if it is given. Typed ones win.
pub(super) fn read_credentials(mode: &mut ConnectionMode) -> Result<(), CliError> {
    let Some(path) = mode.credentials_file.clone() else { return Ok(()) };
    let text = read(&path)?;
    let value = |key: &str| {
        let pairs = text.lines().filter_map(|line| line.split_once('='));
        let mut found = pairs.filter(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned());
        found.next()
    };
    if mode.user.is_none() {
        let missing = || CliError::new(format!("{}: cql.username is missing", path.display()));
        mode.user = Some(value("cql.username").ok_or_else(missing)?);
        mode.password = value("cql.password");
    }
    Ok(())
}

fn read(path: &Path) -> Result<String, CliError> {
    read_input_text(path).map_err(|error| CliError::file_error("read", path, &error))
}
