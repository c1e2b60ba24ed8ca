//! `squall new`: creates a folder with a scenario that runs unchanged. Overwrites no files.

use std::{fs, io, path::Path};

use crate::{
    args::NewArgs,
    exit::{CliError, PASSED},
    terminal::print,
};

/// The files of a new project. A test of this crate checks that the scenario is valid.
const FILES: [(&str, &str); 4] = [
    ("scenario.toml", include_str!("../scaffold/scenario.toml")),
    ("README.md", include_str!("../scaffold/README.md")),
    ("ci.yml", include_str!("../scaffold/ci.yml")),
    (".gitignore", include_str!("../scaffold/gitignore")),
];

pub(crate) fn scaffold(args: &NewArgs) -> Result<u8, CliError> {
    let folder = &args.folder;
    if let Some((name, _)) = FILES.iter().find(|(name, _)| folder.join(name).exists()) {
        return Err(CliError::new(format!(
            "{} exists and is not overwritten: choose another folder",
            folder.join(name).display()
        )));
    }
    fs::create_dir_all(folder).map_err(|error| CliError::file_error("create", folder, &error))?;
    for (name, content) in FILES {
        let path = folder.join(name);
        write_new(&path, content).map_err(|error| CliError::file_error("write", &path, &error))?;
    }
    let shown = folder.display();
    print::stdout(
        format!(
            "made {shown}: scenario.toml, README.md, ci.yml, .gitignore\n\n\
             squall target                        # in another terminal: a shop to test against\n\
             cd {shown}\n\
             squall run scenario.toml --check     # the plan, without sending anything\n\
             squall run scenario.toml\n"
        )
        .as_bytes(),
    )?;
    Ok(PASSED)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, content.as_bytes())
}
