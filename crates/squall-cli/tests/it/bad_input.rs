//! Invalid flags and files: refused with one clear message and exit code 2, before a request is
//! sent.

use crate::support::{TestFolder, target};
use squall_testkit::tls::CertificateAuthority;

/// Runs with `URL` replaced by a target's address. Expects exit code 2, a message that contains
/// `part`, and no request.
#[track_caller]
fn refused(folder: &TestFolder, arguments: &[&str], part: &str) {
    let target = target();
    let url = target.url("/health");
    let arguments: Vec<_> = arguments.iter().map(|argument| argument.replace("URL", &url)).collect();
    let command: Vec<_> = ["run"].into_iter().chain(arguments.iter().map(String::as_str)).collect();
    let ended = folder.squall(&command);
    assert_eq!(ended.code, 2, "{command:?}: {ended:?}");
    assert!(ended.stderr.contains(part), "{command:?} should say `{part}`:\n{}", ended.stderr);
    assert_eq!(target.requests(), 0, "{command:?}");
    assert_eq!(ended.stdout, "", "{command:?}");
}

#[test]
fn invalid_or_contradicting_flags_are_refused() {
    let folder = TestFolder::new();
    let cases: [(&[&str], &str); 42] = [
        (&[], "give a URL, or a .toml"),
        (&["http://"], "URL"),
        (&["http://[::1/x", "--rate", "1", "--for", "1s"], "URL"),
        (&["example.com/shop"], "http://example.com/shop"),
        (&["URL", "--rate", "-5", "--for", "1s"], "--rate"),
        (&["URL", "--rate", "0", "--for", "1s"], "--rate"),
        (&["URL", "--rate", "fast", "--for", "1s"], "not a rate"),
        (&["URL", "--users", "0", "--for", "1s"], "--users"),
        (&["URL", "--rate", "5", "--for", "soon"], "not a duration"),
        (&["URL", "--rate", "5", "--for", "1s", "--ramp-up", "5s"], "ramp"),
        (&["URL", "--rate", "5", "--for", "1s", "-t", "p99<fast"], "p99<fast"),
        (&["URL", "--rate", "5", "--for", "1s", "-t", "p99"], "comparison"),
        (&["URL", "--stages", "10s"], "stage"),
        (&["URL", "--rate", "5", "--for", "1s", "--profile", "zigzag"], "zigzag"),
        (&["URL", "--rate", "5", "--for", "1s", "--body-file", "missing.bin"], "missing.bin"),
        (&["URL", "--rate", "5", "--for", "1s", "--body-file", "/dev/zero"], "/dev/zero: it is not a regular file"),
        (&["URL", "--rate", "5", "--for", "1s", "--ca", "missing.pem"], "missing.pem"),
        (&["URL", "--rate", "5", "--for", "1s", "--ca", "/dev/zero"], "/dev/zero: it is not a regular file"),
        (&["URL", "--rate", "5", "--for", "1s", "-H", "nonsense"], "NAME: VALUE"),
        (&["URL", "--rate", "5", "--for", "1s", "--json", "no/such/folder/x.json"], "no/such/folder"),
        (&["URL", "--rate", "5", "--for", "1s", "--prometheus", "0.0.0.0:0"], "--allow-remote"),
        (&["URL", "--rate", "5", "--for", "1s", "--find-max", "p99"], "comparison"),
        (&["URL", "--rate", "5", "--for", "1s", "--body-json", "{bad"], "is not JSON"),
        (&["URL", "--rate", "5", "--for", "1s", "--json", "x", "--html", "./x"], "two outputs"),
        (&["URL", "--rate", "5", "--for", "1s", "--json-lines", "x.out", "--hdr", "x.out"], "two outputs"),
        (&["URL", "--rate", "5", "--for", "1s", "--json", "-", "--csv", "-"], "standard output"),
        (&["URL", "--rate", "5", "--for", "1s", "--warm-up", "1s"], "leaves nothing"),
        (&["URL", "--rate", "5", "--for", "1s", "--proxy", "https://127.0.0.1:1"], "TLS to the proxy itself"),
        (&["URL", "--rat", "5"], "--rate"),
        (&["URL", "--rate", "5", "--users", "5", "--for", "1s"], "--users"),
        // Flags without an effect.
        (&["URL", "--users", "5", "--max-users", "5", "--for", "1s"], "--max-users is for an open load"),
        (&["URL", "--max-users", "5", "--for", "1s"], "--max-users is for an open load"),
        (&["URL", "--users", "5", "--late-after", "1s", "--for", "1s"], "no start is late"),
        (&["URL", "--rate", "5", "--for", "1s", "--find-max-probe", "3s"], "--find-max-probe belongs to --find-max"),
        (&["URL", "--rate", "5", "--find-max-precision", "3%"], "--find-max-precision belongs to --find-max"),
        (&["URL", "--rate", "5", "--for", "1s", "--fleet", "x"], "--fleet belongs to --cluster"),
        (&["URL", "--users", "5", "--poisson", "--for", "1s"], "`arrivals` does not go with users"),
        (&["URL", "--rate", "5", "--pause", "1s", "--for", "1s"], "`pause` does not go with a rate"),
        (&["URL", "--stages", "1s:5", "--ramp-up", "1s"], "make the ramp the first stage"),
        (&["URL", "--rate", "5", "--for", "1s", "--insecure", "--ca", "x.pem"], "keep one of them"),
        (&["URL", "--rate", "5", "--for", "1s", "--server-name", "shop"], "no request goes to https://"),
        (&["URL", "--rate", "5", "--for", "1s", "--late-after", "0s"], "0 makes every start late"),
    ];
    for (arguments, part) in cases {
        refused(&folder, arguments, part);
    }
}

#[test]
fn unusable_files_are_refused() {
    let folder = TestFolder::new();
    folder.write("load.py", "").write("broken.toml", "name = ");
    folder.write(
        "mistakes.toml",
        "name = \"x\"\ntarget = \"http://127.0.0.1:9\"\n[load]\nrat = \"5/s\"\nfor = \"1s\"\n\
         [[task]]\nname = \"a\"\nweight = 0\nget = \"/\"\n",
    );
    refused(&folder, &["missing.toml"], "missing.toml");
    refused(&folder, &["load.py"], "pip install");
    refused(&folder, &["broken.toml"], "broken.toml:1");
    refused(&folder, &["mistakes.toml"], "did you mean `rate`");
    refused(&folder, &["mistakes.toml"], "weight");
    refused(&folder, &["mistakes.toml", "--method", "PUT"], "--method");
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let folder = TestFolder::new();
    let ended = folder.squall(&["run", "127.0.0.1:9", "--rate", "-1", "--for", "never", "-t", "p99"]);
    assert_eq!(ended.code, 2);
    for part in ["--rate", "--for", "--threshold", "nothing was sent"] {
        assert!(ended.stderr.contains(part), "{part} is missing in\n{}", ended.stderr);
    }
}

#[test]
fn check_prints_the_plan_and_sends_nothing() {
    let (target, folder) = (target(), TestFolder::new());
    let url = target.url("/health");
    let ended = folder.squall(&["run", &url, "--rate", "90/m", "--for", "30s", "--check"]);
    assert_eq!((ended.code, target.requests()), (0, 0), "{ended:?}");
    assert!(ended.stdout.contains("1.5") && ended.stdout.contains("30s"), "{}", ended.stdout);
}

#[test]
fn misspelled_command_suggests_the_right_one() {
    let ended = TestFolder::new().squall(&["comprae", "a", "b"]);
    assert_eq!(ended.code, 2);
    assert!(ended.stderr.contains("compare"), "{}", ended.stderr);
}

/// Each output is written at the end of the run, when the scenario can no longer be restored.
#[test]
fn output_over_a_file_that_the_run_reads_is_refused() {
    let folder = TestFolder::new();
    let text = "[[data]]\nname = 'rows'\nfile = 'rows.csv'\n[[task]]\nname = 'x'\nget = '/health?{{ rows.id }}'\n";
    folder.write("shop.toml", text).write("rows.csv", "id\n1\n").write("body.bin", "hi");
    std::os::unix::fs::symlink("rows.csv", folder.path("link.csv")).expect("a writable folder");
    std::fs::hard_link(folder.path("shop.toml"), folder.path("other.toml")).expect("a writable folder");
    let scenario = ["shop.toml", "--target", "URL", "--rate", "5", "--for", "1s"];
    let url = ["URL", "--body-file", "body.bin", "--rate", "5", "--for", "1s"];
    for (flag, path, input) in [
        ("--json", "./shop.toml", "shop.toml"),
        ("--html", "other.toml", "shop.toml"),
        ("--csv", "rows.csv", "rows.csv"),
        ("--junit", "link.csv", "rows.csv"),
        ("--json-lines", "link.csv", "rows.csv"),
        ("--hdr", "shop.toml", "shop.toml"),
        ("--save-baseline", "link.csv", "rows.csv"),
    ] {
        let part = format!("{flag} {path} would replace {input}, which the command reads: give another path");
        refused(&folder, &[&scenario[..], &[flag, path]].concat(), &part);
        refused(&folder, &[&scenario[..], &[flag, path, "--cluster", "redis://127.0.0.1:1"]].concat(), &part);
    }
    refused(&folder, &[&url[..], &["--json", "body.bin"]].concat(), "would replace body.bin");
    refused(&folder, &[&scenario[..3], &["--find-max", "p99<1s", "--json", "shop.toml"]].concat(), "would replace");
    assert_eq!((folder.read("shop.toml"), folder.read("rows.csv")), (text.to_owned(), "id\n1\n".to_owned()));
}

#[test]
fn output_over_a_secret_a_certificate_or_squall_toml_is_refused() {
    let folder = TestFolder::new();
    folder.write("squall.toml", "[run]\nrate = 5\n").write("tok", "ann:pw\n");
    for (flag, value) in
        [("--bearer", "@tok"), ("--basic", "@tok"), ("-H", "X-Key: @tok"), ("-F", "a=@tok"), ("-d", "@tok")]
    {
        refused(&folder, &["URL", flag, value, "--json", "tok"], "--json tok would replace tok");
    }
    refused(&folder, &["URL", "--json", "squall.toml"], "--json squall.toml would replace squall.toml");
    let authority = CertificateAuthority::new();
    let ca = authority.ca_file();
    let ca = ca.to_str().expect("UTF-8");
    refused(&folder, &["https://127.0.0.1:1/", "--ca", ca, "--html", ca], &format!("--html {ca} would replace {ca}"));
    assert_eq!(folder.read("tok"), "ann:pw\n");
}

#[test]
fn named_pipes_folders_and_devices_are_refused_as_inputs() {
    let folder = TestFolder::new();
    let made = std::process::Command::new("mkfifo").arg(folder.path("pipe.toml")).status().expect("mkfifo");
    assert!(made.success());
    std::os::unix::fs::symlink("/dev/zero", folder.path("zero.toml")).expect("a writable folder");
    for path in ["pipe.toml", "zero.toml"] {
        let secret = format!("@{path}");
        refused(&folder, &[path, "--check"], "not a regular file");
        refused(&folder, &["--plan", path, "--check"], "not a regular file");
        refused(&folder, &["URL", "--bearer", &secret, "--check"], "not a regular file");
        for command in [&["report", path][..], &["compare", path, path]] {
            let ended = folder.squall(command);
            assert!(ended.code == 2 && ended.stderr.contains("not a regular file"), "{command:?}: {ended:?}");
        }
    }
    std::fs::create_dir(folder.path("squall.toml")).expect("a writable folder");
    refused(&folder, &["URL", "--check"], "cannot read squall.toml: it is not a regular file");
    std::fs::remove_dir(folder.path("squall.toml")).expect("it is empty");
    std::fs::rename(folder.path("pipe.toml"), folder.path("squall.toml")).expect("a writable folder");
    refused(&folder, &["URL", "--check"], "cannot read squall.toml: it is not a regular file");
}

/// `<(command)` of a shell is a path below `/dev/fd`.
#[test]
fn secret_can_come_from_an_open_pipe() {
    let (target, folder) = (target(), TestFolder::new());
    let line = format!("printf secret | squall run {} --bearer @/dev/fd/0 --check", target.url("/health"));
    let ended = folder.shell(&line).output().expect("a shell");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}
