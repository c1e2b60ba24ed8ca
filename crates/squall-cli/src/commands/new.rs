//! `squall new`: creates a folder with a scenario that runs unchanged. Overwrites no files.

use std::{fs, io, path::Path};

use crate::{
    args::NewArgs,
    exit::{CliError, PASSED},
    terminal::print,
};

/// What differs between a project in TOML and one in Python. Tests run both scenarios, and the steps of
/// both CI files.
struct ProjectLanguage {
    scenario: &'static str,
    content: &'static str,
    /// The steps of the CI file that install the command. Squall is in no package registry, so they build
    /// it.
    install: &'static str,
}

const TOML: ProjectLanguage = ProjectLanguage {
    scenario: "scenario.toml",
    content: include_str!("../scaffold/scenario.toml"),
    install: concat!(
        "      # Builds Squall from its repository, which takes several minutes.\n",
        "      - run: cargo install --locked --git ",
        env!("CARGO_PKG_REPOSITORY"),
        " squall-cli\n",
    ),
};

const PYTHON: ProjectLanguage = ProjectLanguage {
    scenario: "scenario.py",
    content: include_str!("../scaffold/scenario.py"),
    install: concat!(
        "      - uses: actions/setup-python@v5\n",
        "        with:\n",
        "          python-version: \"3.13\"\n",
        "      # Builds Squall from its repository, which takes several minutes.\n",
        "      - run: pip install git+",
        env!("CARGO_PKG_REPOSITORY"),
        "\n",
    ),
};

impl ProjectLanguage {
    /// Blanks that make both scenario names equally long, so that the comments after commands align.
    fn gap(&self) -> &'static str {
        &"  "[self.scenario.len() - PYTHON.scenario.len()..]
    }

    /// The files of a new project.
    fn files(&self) -> [(&'static str, String); 4] {
        let fill = |text: &str| {
            let text = text.replace("{scenario}", self.scenario).replace("{install}", self.install);
            text.replace("{gap}", self.gap())
        };
        [
            (self.scenario, self.content.to_owned()),
            ("README.md", fill(include_str!("../scaffold/README.md"))),
            ("ci.yml", fill(include_str!("../scaffold/ci.yml"))),
            (".gitignore", include_str!("../scaffold/gitignore").to_owned()),
        ]
    }
}

pub(crate) fn scaffold(args: &NewArgs) -> Result<u8, CliError> {
    let (folder, language) = (&args.folder, if args.python { PYTHON } else { TOML });
    let files = language.files();
    if let Some((name, _)) = files.iter().find(|(name, _)| folder.join(name).exists()) {
        return Err(CliError::new(format!(
            "{} exists and is not overwritten: choose another folder",
            folder.join(name).display()
        )));
    }
    fs::create_dir_all(folder).map_err(|error| CliError::file_error("create", folder, &error))?;
    for (name, content) in files {
        let path = folder.join(name);
        write_new(&path, &content).map_err(|error| CliError::file_error("write", &path, &error))?;
    }
    let (shown, scenario, gap) = (folder.display(), language.scenario, language.gap());
    print::stdout(
        format!(
            "made {shown}: {scenario}, README.md, ci.yml, .gitignore\n\n\
             squall target                        # in another terminal: a shop to test against\n\
             cd {shown}\n\
             squall run {scenario} --check{gap}     # the plan, without sending anything\n\
             squall run {scenario}\n"
        )
        .as_bytes(),
    )?;
    Ok(PASSED)
}

fn write_new(path: &Path, content: &str) -> io::Result<()> {
    let mut file = fs::File::create_new(path)?;
    io::Write::write_all(&mut file, content.as_bytes())
}
