//! The files that the options of `squall cql` name: lists of nodes, credentials and user profiles, which no output
//! may replace. It connects to nothing.

use squall_cql::{ConnectionMode, NodeAddress, NodeList, StressOperation, StressSettings, parse_node_file};
use squall_scenario::read_input_text;
use std::path::{Path, PathBuf};

use crate::{
    args::OutputArgs, bundle::ProfileFile, commands::run::outputs::reject_shared_paths, exit::CliError,
    input_files::reject_shared_files,
};

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

/// Refuses an output that has the path of another one, or of a file that the command reads.
pub(super) fn refuse_shared_files(settings: &StressSettings, output: &OutputArgs) -> Result<(), CliError> {
    let (log, graph) = (&settings.log, settings.graph.as_ref().map(|graph| &graph.file));
    let words = [("-log file=", log.file.as_ref()), ("-log hdrfile=", log.hdr_file.as_ref()), ("-graph file=", graph)];
    let words = words.into_iter().filter_map(|(word, path)| Some((word, path?.as_path())));
    let outputs: Vec<(&str, &Path)> = output.files().into_iter().chain(words).collect();
    let paths: Vec<PathBuf> = outputs.iter().map(|(_, path)| path.to_path_buf()).collect();
    reject_shared_paths(paths.iter())?;
    reject_shared_files(&outputs, &inputs(settings))
}

fn inputs(settings: &StressSettings) -> Vec<PathBuf> {
    let mut inputs = match &settings.command.operation {
        StressOperation::User { profiles, .. } => profiles.clone(),
        StressOperation::Basic(_) | StressOperation::Mixed { .. } => Vec::new(),
    };
    if let NodeList::File(path) = &settings.nodes.nodes {
        inputs.push(path.clone());
    }
    let stores = settings.tls.iter().flat_map(|tls| [Some(&tls.truststore), tls.keystore.as_ref()]);
    inputs.extend(stores.chain([settings.mode.credentials_file.as_ref()]).flatten().cloned());
    inputs
}

fn read(path: &Path) -> Result<String, CliError> {
    read_input_text(path).map_err(|error| CliError::file_error("read", path, &error))
}
