//! Tests of a folder of runs on a real file system.

use squall_history::{FindRunError, MAX_NOTE_BYTES, ReadRunError, RunFilter, RunFolder, RunId, WriteNoteError};
use squall_report::{ResultFile, RunVerdict};
use std::{fs, path::Path};

const LIMIT: u64 = 1 << 20;

/// A result of a run that started `second` seconds after a fixed time.
fn result(name: &str, second: u64) -> ResultFile {
    let mut result = ResultFile::parse(include_str!("result.json")).unwrap();
    result.run.name = name.to_owned();
    result.run.started_unix_ms = 1_794_779_700_000 + second * 1000;
    result.run.started = format!("2026-11-15T21:55:{second:02}.000Z");
    result
}

fn folder_in(parent: &tempfile::TempDir, limit: u64) -> RunFolder {
    RunFolder::new(parent.path().join("runs"), limit)
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn saved_runs_are_listed_latest_first_and_read_back_whole() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    assert!(folder.list().unwrap().runs.is_empty(), "a folder that does not exist has no runs");
    folder.create().unwrap();
    let (first, second) = (result("Checkout, peak", 1), result("shop", 2));
    let saved = [&first, &second].map(|result| folder.save(result).unwrap());
    assert!(saved[0].id.as_str().starts_with("20261115-215501-checkout-peak-"), "{}", saved[0].id);
    let list = folder.list().unwrap();
    assert_eq!(list.runs.iter().map(|run| run.name.as_str()).collect::<Vec<_>>(), ["shop", "Checkout, peak"]);
    let run = &list.runs[1];
    let shown = (run.requests, run.p99_ms, run.verdict, run.load.as_str(), run.workers);
    assert_eq!(shown, (40, first.latency_ms.response.p99, RunVerdict::Passed, "20/s for 2s", None));
    assert_eq!(folder.read(&saved[0].id).unwrap(), first);
    assert_eq!(names(folder.path()).len(), 2, "no temporary file stays");
}

#[test]
fn run_that_is_saved_twice_is_kept_once_and_another_one_of_the_same_moment_too() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    let mut run = result("shop", 1);
    let id = folder.save(&run).unwrap().id;
    assert_eq!(folder.save(&run).unwrap().id, id);
    run.totals.requests += 1;
    assert_eq!(folder.save(&run).unwrap().id.as_str(), format!("{id}-2"));
    assert_eq!(folder.list().unwrap().runs.len(), 2);
}

#[test]
fn oldest_saved_runs_leave_a_full_folder_and_foreign_results_stay() {
    let parent = tempfile::tempdir().unwrap();
    let size = serde_json::to_vec(&result("shop", 1)).unwrap().len() as u64;
    let folder = folder_in(&parent, 2 * size + size / 2);
    folder.create().unwrap();
    fs::write(folder.path().join("before.json"), result("mine", 0).to_json()).unwrap();
    let first = folder.save(&result("shop", 1)).unwrap();
    folder.set_note(&first.id, "slow").unwrap();
    assert!(first.removed.is_empty());
    assert!(folder.save(&result("shop", 2)).unwrap().removed.is_empty());
    assert_eq!(folder.save(&result("shop", 3)).unwrap().removed, [first.id]);
    let names = names(folder.path());
    assert!(names.len() == 3 && names.contains(&"before.json".to_owned()), "{names:?}");
    let tiny = folder_in(&parent, 1);
    let last = tiny.save(&result("shop", 4)).unwrap();
    assert_eq!(last.removed.len(), 2, "only the run that was just saved stays");
    assert!(tiny.get(&last.id).is_ok());
}

#[test]
fn bundle_of_a_run_is_private_counts_for_the_limit_and_leaves_with_its_run() {
    use std::os::unix::fs::PermissionsExt;
    let parent = tempfile::tempdir().unwrap();
    let size = serde_json::to_vec(&result("shop", 1)).unwrap().len() as u64;
    let folder = folder_in(&parent, 3 * size + size / 2);
    let first = folder.save_with_bundle(&result("shop", 1), &vec![b'x'; size as usize]).unwrap();
    assert!(folder.get(&first.id).unwrap().can_start && folder.list().unwrap().runs[0].can_start);
    assert_eq!(folder.read_bundle(&first.id).unwrap().map(|text| text.len() as u64), Some(size));
    let mode = fs::metadata(folder.path().join(format!("{}.bundle", first.id))).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let second = folder.save(&result("shop", 2)).unwrap();
    assert!(second.removed.is_empty() && !folder.get(&second.id).unwrap().can_start);
    assert_eq!(folder.read_bundle(&second.id).unwrap(), None);
    assert_eq!(folder.save(&result("shop", 3)).unwrap().removed, [first.id], "a result and a bundle count twice");
    assert_eq!(names(folder.path()).len(), 2);
}

#[test]
fn files_that_are_not_results_are_named_and_skipped() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    folder.save(&result("shop", 1)).unwrap();
    let text = result("shop", 2).to_json();
    for (name, content) in [
        ("cut.json", &text[..text.len() / 2]),
        ("empty.json", ""),
        ("search.json", "{\"schema\": \"squall.search/1\"}"),
        ("newer.json", &text.replace("squall.result/1", "squall.result/9")),
        ("report.html", "<html>"),
        (".half-written.json", &text),
    ] {
        fs::write(folder.path().join(name), content).unwrap();
    }
    fs::create_dir(folder.path().join("folder.json")).unwrap();
    let list = folder.list().unwrap();
    assert_eq!(list.runs.len(), 1);
    let skipped: Vec<&str> = list.skipped.iter().map(|skipped| skipped.file.as_str()).collect();
    assert_eq!(skipped, ["cut.json", "empty.json", "newer.json", "search.json"]);
    assert!(list.skipped[2].reason.contains("squall.result/9"), "{:?}", list.skipped[2]);
    let error = folder.read(&RunId::new("cut").unwrap()).unwrap_err();
    assert!(matches!(error, ReadRunError::NotAResult { .. }), "{error}");
}

#[test]
fn changed_file_is_read_again() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    folder.create().unwrap();
    let file = folder.path().join("mine.json");
    fs::write(&file, result("before", 1).to_json()).unwrap();
    assert_eq!(folder.list().unwrap().runs[0].name, "before");
    fs::write(&file, result("afterwards", 1).to_json()).unwrap();
    assert_eq!(folder.list().unwrap().runs[0].name, "afterwards");
    fs::remove_file(&file).unwrap();
    assert!(folder.list().unwrap().runs.is_empty());
}

#[test]
fn note_is_shown_searched_changed_and_removed() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    let id = folder.save(&result("shop", 1)).unwrap().id;
    folder.set_note(&id, "  after the cache fix\n").unwrap();
    let run = folder.get(&id).unwrap();
    assert_eq!(run.note, "after the cache fix");
    let search = |text: &str| RunFilter { search: text.to_owned(), verdict: None };
    assert!(search("CACHE shop").matches(&run) && search("").matches(&run) && !search("cache basket").matches(&run));
    let breached = RunFilter { verdict: Some(RunVerdict::ThresholdBreached), ..RunFilter::default() };
    assert!(!breached.matches(&run));
    let error = folder.set_note(&id, &"x".repeat(MAX_NOTE_BYTES + 1)).unwrap_err();
    assert!(matches!(error, WriteNoteError::TooLong { .. }), "{error}");
    folder.set_note(&id, "").unwrap();
    assert_eq!(folder.get(&id).unwrap().note, "");
    let unknown = RunId::new("unknown").unwrap();
    assert!(matches!(folder.set_note(&unknown, "x"), Err(WriteNoteError::Run(ReadRunError::Unknown { .. }))));
}

#[test]
fn removed_run_takes_its_note_along() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    let id = folder.save(&result("shop", 1)).unwrap().id;
    folder.set_note(&id, "slow").unwrap();
    folder.remove(&id).unwrap();
    assert!(names(folder.path()).is_empty());
    assert!(matches!(folder.remove(&id), Err(ReadRunError::Unknown { .. })));
}

#[test]
fn run_is_found_by_its_id_a_part_of_it_or_as_the_latest() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    assert!(matches!(folder.find("latest"), Err(FindRunError::Empty { .. })));
    let [shop, basket] = ["shop", "basket"].map(|name| folder.save(&result(name, 1)).unwrap().id);
    let latest = folder.save(&result("shop", 2)).unwrap().id;
    for (word, id) in [("latest", &latest), (basket.as_str(), &basket), ("215502", &latest), ("basket", &basket)] {
        assert_eq!(&folder.find(word).unwrap(), id, "{word}");
    }
    assert_eq!(folder.find(&format!("{shop}.json")).unwrap(), shop);
    let error = folder.find("shop").unwrap_err().to_string();
    assert!(error.starts_with("`shop` is part of 2 ids: 2026") && error.contains(shop.as_str()), "{error}");
    let wrong = shop.as_str().replace("shop", "shpo");
    let error = folder.find(&wrong).unwrap_err().to_string();
    assert!(error.ends_with(&format!("did you mean `{shop}`?")), "{error}");
}

#[test]
fn bundle_without_a_result_leaves_the_folder_after_an_hour() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    folder.create().unwrap();
    let [old, new] = ["old.bundle", "new.bundle"].map(|name| folder.path().join(name));
    fs::write(&new, "{}").unwrap();
    let two_hours_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    fs::File::create(&old).unwrap().set_modified(two_hours_ago).unwrap();
    folder.save_with_bundle(&result("shop", 1), b"{}").unwrap();
    assert!(!old.exists() && new.exists());
    assert_eq!(names(folder.path()).len(), 3);
}

#[test]
fn file_that_is_too_large_for_a_result_is_not_read() {
    let parent = tempfile::tempdir().unwrap();
    let folder = folder_in(&parent, LIMIT);
    folder.create().unwrap();
    let huge = fs::File::create(folder.path().join("huge.json")).unwrap();
    huge.set_len((1 << 30) + 1).unwrap();
    match folder.read_text(&RunId::new("huge").unwrap()) {
        Err(ReadRunError::Read { cause, .. }) => assert_eq!(cause.to_string(), "larger than 1 GiB"),
        other => panic!("{:?}", other.map(|text| text.len())),
    }
}
