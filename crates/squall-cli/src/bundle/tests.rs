//! Tests of the bundle: its JSON, and that a worker gets the same settings back.

use super::*;
use crate::{
    args::{Cli, CliCommand},
    script_error::ScriptError,
    script_host::ScriptOptions,
};
use clap::Parser;
use squall_scenario::{NoFiles, Scenario, ScenarioDriver};
use squall_streams::cli::{AppStreamSend, StreamWorkerArgs};
use squall_worker::DriverFactory;

/// Opens every script as one constant scenario, and keeps the options of the last one.
#[derive(Clone, Default)]
struct FakeHost {
    options: std::sync::Arc<Mutex<Option<ScriptOptions>>>,
}

impl ScriptHost for FakeHost {
    type Driver = ScenarioDriver;

    fn open(&self, script: ScriptOptions) -> Result<LoadedScenario<ScenarioDriver>, ScriptError> {
        *self.options.lock().unwrap() = Some(script.clone());
        let text = "target = 'http://shop.test'\n[[task]]\nname = 'browse'\nget = '/'\n";
        let scenario = Scenario::parse("shop.py", text, &mut NoFiles, script.overrides);
        scenario.map(LoadedScenario::declarative).map_err(|errors| ScriptError::InvalidScenario(errors.to_string()))
    }

    fn run_stream_worker(&self, _: &StreamWorkerArgs) -> Result<u8, ScriptError> {
        Err(ScriptError::Exception("no streams here".to_owned()))
    }

    fn send_to_stream(&self, _: &AppStreamSend) -> Result<u8, ScriptError> {
        Err(ScriptError::Exception("no streams here".to_owned()))
    }
}

fn bundle_of(input: &str, flags: &str) -> Bundle {
    let words = ["squall", "run", input].into_iter().chain(flags.split_whitespace());
    let CliCommand::Run(args) = Cli::try_parse_from(words).expect("valid flags").command else { panic!("not a run") };
    let input = RunInput::parse(input).expect("an input");
    build(&input, &args, &FakeHost::default()).map_err(|error| error.to_string()).expect("a bundle").0
}

/// The bundle as it is stored, with the path of `folder` replaced.
fn stored(bundle: &Bundle, folder: &Path) -> String {
    let json = serde_json::to_string_pretty(bundle).expect("JSON");
    json.replace(&folder.display().to_string(), "FOLDER")
}

#[test]
fn bundle_of_a_url_has_its_request_and_no_credentials_of_the_fleet() {
    let flags = "--rate 5 --for 2s --seed 7 -X POST -d hi -H a:b --bearer t --threads 2 --cluster redis://:secret@h";
    let json = stored(&bundle_of("http://shop.test/x", flags), Path::new("/none"));
    assert!(!json.contains("secret"), "{json}");
    insta::assert_snapshot!("bundle_url", json);
}

#[test]
fn bundle_of_a_scenario_file_has_its_text_files_and_params() {
    let folder = tempfile::tempdir().unwrap();
    let text = "target = 'http://shop.test'\nname = 'shop'\n[variables]\nregion = 'eu'\n[[data]]\nname = 'rows'\n\
                file = 'rows.csv'\n[[task]]\nname = 'browse'\nget = '/{{ rows.id }}/{{ region }}'\n";
    fs::write(folder.path().join("shop.toml"), text).unwrap();
    fs::write(folder.path().join("rows.csv"), "id\n1\n").unwrap();
    let path = folder.path().join("shop.toml").display().to_string();
    let bundle = bundle_of(&path, "--users 3 --for 2s --seed 7 --param region=us");
    insta::assert_snapshot!("bundle_toml", stored(&bundle, folder.path()));
}

#[test]
fn worker_opens_a_script_with_the_settings_of_the_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).display().to_string();
    fs::write(at("shop.py"), "pass").unwrap();
    fs::write(at("requirements.txt"), "faker").unwrap();
    let flags = format!(
        "--users 3 --for 2s --seed 7 --scenario Shop --mode stepped --threads-for-blocking 9 --param a=1 --param a=2 --requirements {}",
        at("requirements.txt")
    );
    let bundle = bundle_of(&at("shop.py"), &flags);
    insta::assert_snapshot!("bundle_script", stored(&bundle, folder.path()));

    let json = serde_json::to_string(&bundle).unwrap();
    let bundle: Bundle = serde_json::from_str(&json).unwrap();
    let host = FakeHost::default();
    let opener = BundleOpener::new(host.clone());
    opener.open_bundle(&bundle).map(drop).expect("a runnable bundle");
    let options = host.options.lock().unwrap().take().expect("an opened script");
    assert_eq!(fs::read_to_string(&options.file).unwrap(), "pass", "the script is unpacked");
    assert_eq!(options.scenario.as_deref(), Some("Shop"));
    assert_eq!(options.mode.as_deref(), Some("stepped"));
    assert_eq!(options.requirements.as_deref(), Some("faker"));
    assert_eq!(options.threads_for_blocking, Some(9));
    assert_eq!(options.params, [("a".to_owned(), "2".to_owned())]);
    assert_eq!(options.overrides.load.users, Some(Sourced::from_flag("--users", "3")));
    assert_eq!(options.overrides.seed, Some(Sourced::from_flag("--seed", 7u64)));
}

#[test]
fn settings_with_unknown_fields_are_refused_by_the_worker() {
    let mut bundle = bundle_of("http://shop.test/x", "--rate 5");
    let mut settings: serde_json::Value = bundle.settings.decode().unwrap();
    settings["extra"] = 1.into();
    bundle.settings = EncodedSettings::encode(&settings).unwrap();
    let error = BundleOpener::new(FakeHost::default()).open_bundle(&bundle).map(drop).unwrap_err().to_string();
    assert!(error.contains("the bundle's settings cannot be read") && error.contains("extra"), "{error}");
}

/// The command line refuses such a scenario, but anyone can post a bundle to the API.
#[test]
fn bundle_with_variables_that_double_each_other_is_refused_by_the_worker() {
    let folder = tempfile::tempdir().unwrap();
    let text = "target = 'http://shop.test'\n[variables]\nv0 = 'abcd'\n[[task]]\nname = 'browse'\nget = '/{{ v0 }}'\n";
    fs::write(folder.path().join("shop.toml"), text).unwrap();
    let mut bundle = bundle_of(&folder.path().join("shop.toml").display().to_string(), "--rate 5");
    let mut doubled = "v0 = 'abcd'".to_owned();
    for n in 1..40 {
        doubled += &format!("\\nv{n} = '{{{{ v{0} }}}}{{{{ v{0} }}}}'", n - 1);
    }
    let settings: serde_json::Value = bundle.settings.decode().unwrap();
    let settings = settings.to_string().replace("v0 = 'abcd'", &doubled);
    bundle.settings = EncodedSettings::encode(&serde_json::from_str::<serde_json::Value>(&settings).unwrap()).unwrap();
    let error = BundleOpener::new(FakeHost::default()).open_bundle(&bundle).map(drop).unwrap_err().to_string();
    assert!(error.contains("this text can become longer than 16 MiB") && error.contains("v23"), "{error}");
}

#[test]
fn module_paths_outside_the_folder_are_refused() {
    assert!(checked_relative_path("a/b.py").is_ok());
    for path in ["../a.py", "/etc/x", "a/../../b"] {
        assert!(checked_relative_path(path).is_err(), "{path}");
    }
}
