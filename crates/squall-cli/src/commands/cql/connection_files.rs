//! The files that the connection options of `squall cql` name: lists of nodes and credentials. It
//! connects to nothing.

use squall_cql::{ConnectionMode, NodeAddress, NodeList, parse_node_file};
use std::{fs, path::Path};

use crate::exit::CliError;

/// The listed nodes, from `-node a,b` or from the file of `-node file=`.
pub(super) fn read_nodes(nodes: &NodeList) -> Result<Vec<NodeAddress>, CliError> {
    match nodes {
        NodeList::Listed(nodes) => Ok(nodes.clone()),
        NodeList::File(path) => {
            parse_node_file(&read(path)?).map_err(|reason| CliError::new(format!("{}: {reason}", path.display())))
        }
    }
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
    fs::read_to_string(path).map_err(|error| CliError::file_error("read", path, &error))
}
