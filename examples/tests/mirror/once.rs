//! Single runs.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::programs::{Running, program, run};
use crate::support::{
    Pair, Summary, TOO_LARGE, interrupt, tree, until, with_disk_of, with_small_disk,
};

#[test]
fn a_nested_tree_is_copied_whole_and_not_copied_again() {
    let pair = Pair::new();
    pair.write("a", "one");
    pair.write("b/c/d/e/f", "deep");
    pair.write("b/with space", "");
    pair.write("b/c/large", TOO_LARGE);
    pair.write(&"n".repeat(255), "the longest name there is");
    fs::create_dir_all(pair.source().join("empty/directory")).unwrap();
    for file in 0..300 {
        pair.write(&format!("many/{}/{file}", file % 7), file.to_string());
    }
    fs::set_permissions(pair.source().join("a"), fs::Permissions::from_mode(0o500)).unwrap();

    let summary = pair.mirror();
    assert_eq!(summary.get(["files copied", "failed"]), [305, 0]);
    assert!(summary.0.contains("trees: equal (305 files"), "{summary:?}");

    let again = pair.mirror();
    assert_eq!(again.get(["files copied", "files touched"]), [0, 0]);
}

#[test]
fn a_change_that_leaves_size_and_time_as_they_were_is_seen_if_the_time_is_recent() {
    let pair = Pair::new();
    // Later than any start of the program, as is every change that happens while it runs.
    let time = SystemTime::now() + Duration::from_secs(3600);
    for content in ["one", "two"] {
        pair.write("a", content);
        let file = File::open(pair.source().join("a")).unwrap();
        file.set_modified(time).unwrap();
        assert_eq!(pair.mirror().get(["files copied"]), [1]);
    }
}

#[test]
fn only_the_time_and_mode_are_set_where_the_content_is_equal() {
    let pair = Pair::new();
    pair.write("a", "one");
    pair.mirror();
    let file = File::open(pair.source().join("a")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    file.set_permissions(fs::Permissions::from_mode(0o640))
        .unwrap();
    let summary = pair.mirror();
    assert_eq!(summary.get(["files copied", "files touched"]), [0, 1]);
}

#[test]
fn what_is_not_in_the_source_is_deleted_and_what_is_of_another_type_replaced() {
    let pair = Pair::new();
    let outside = pair.dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("kept"), "kept").unwrap();
    for root in [pair.source(), pair.target()] {
        fs::create_dir_all(root.join("kept")).unwrap();
    }
    let target = pair.target();
    // To be deleted.
    fs::create_dir_all(target.join("extra/deep/er")).unwrap();
    fs::write(target.join("extra/deep/er/file"), "x").unwrap();
    fs::write(target.join("kept/extra"), "x").unwrap();
    symlink(&outside, target.join("extra link")).unwrap();
    fs::write(target.join(".mirror-1-abcdef"), "of a killed run").unwrap();
    // In the place of something else.
    pair.write("file", "a file");
    fs::create_dir_all(target.join("file/was/directory")).unwrap();
    pair.write("directory/file", "in it");
    fs::write(target.join("directory"), "was a file").unwrap();
    pair.write("linked/kept", "of the source");
    symlink(&outside, target.join("linked")).unwrap();
    symlink("nowhere", pair.source().join("link")).unwrap();
    fs::create_dir_all(target.join("link/was/directory")).unwrap();

    let summary = pair.mirror();
    assert!(summary.get(["deleted"]) >= [4], "{summary:?}");
    let kept = fs::read_to_string(outside.join("kept")).unwrap();
    assert_eq!(kept, "kept", "written through a link");
}

#[test]
fn links_are_copied_as_links_and_a_loop_of_them_ends() {
    let pair = Pair::new();
    pair.write("a/file", "one");
    symlink("..", pair.source().join("a/up")).unwrap();
    symlink("self", pair.source().join("self")).unwrap();
    symlink("nowhere", pair.source().join("broken")).unwrap();
    symlink("a/file", pair.source().join("good")).unwrap();
    let summary = pair.mirror();
    assert_eq!(summary.get(["links made", "files copied"]), [4, 1]);
    assert_eq!(pair.mirror().get(["links made"]), [0]);

    fs::remove_file(pair.source().join("good")).unwrap();
    symlink("a", pair.source().join("good")).unwrap();
    assert_eq!(pair.mirror().get(["links made"]), [1]);
}

#[test]
fn a_special_file_is_reported_and_left_out() {
    let pair = Pair::new();
    pair.write("file", "one");
    let _socket = UnixListener::bind(pair.source().join("socket")).unwrap();
    let ended = pair.run(program("mirror"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let told = "socket is a special file";
    assert!(ended.stderr.contains(told), "{ended:?}");
    assert_eq!(Summary::of(&ended).get(["special files skipped"]), [1]);
    pair.assert_equal();
    assert!(!pair.target().join("socket").exists());
}

#[test]
fn a_file_that_fails_is_retried_and_named_and_the_others_are_copied() {
    let pair = Pair::new();
    pair.write("a/too large", TOO_LARGE);
    for file in 0..50 {
        pair.write(&format!("a/{file}"), "small");
    }
    let ended = pair.run(with_small_disk());
    assert_eq!(ended.code, Some(1), "{ended:?}");
    for told in ["failed: a/too large: cannot copy", "(attempts: 5)"] {
        assert!(ended.stderr.contains(told), "{ended:?}");
    }
    let counts = Summary::of(&ended).get(["files copied", "retries", "failed"]);
    assert_eq!(counts, [50, 4, 1], "{ended:?}");
    let told = "trees: NOT equal (50 files, 250 bytes, 1 differences)";
    assert!(ended.stdout.contains(told), "{ended:?}");

    // Nothing half-written is left, under whatever name.
    let mut expected = tree(&pair.source());
    expected.remove(Path::new("a/too large"));
    assert_eq!(tree(&pair.target()), expected);
    // And where it fits, the next run mends it.
    assert_eq!(pair.mirror().get(["files copied"]), [1]);
}

#[test]
fn an_interrupt_leaves_no_temporary_file() {
    let pair = Pair::new();
    // A terabyte without blocks, and a limit in case the interrupt does not work.
    let large = File::create(pair.source().join("large")).unwrap();
    large.set_len(1 << 40).unwrap();
    let mut command = with_disk_of(1 << 24);
    let mirroring = Running::piped(command.args([pair.source(), pair.target()]));
    let temporary = || {
        let entries = fs::read_dir(pair.target()).into_iter().flatten().flatten();
        let mut names = entries.map(|entry| entry.file_name());
        names.any(|name| name.to_string_lossy().starts_with(".mirror-"))
    };
    until("a temporary file", temporary);
    let ended = interrupt(mirroring, 130);
    assert!(ended.stderr.contains("mirror: interrupted"), "{ended:?}");
    assert_eq!(tree(&pair.target()).len(), 0);
}

#[test]
fn wrong_arguments_are_refused_with_2_and_change_nothing() {
    let pair = Pair::new();
    pair.write("file", "one");
    pair.write("inner/file", "two");
    symlink("source/inner", pair.dir.path().join("link")).unwrap();
    let before = tree(pair.dir.path());

    let cases: [(&[&str], &str); 13] = [
        (&["source"], "DST"),
        (&["source", "target", "more"], "more"),
        (&["source", "target", "--unknown"], "--unknown"),
        (&["source", "target", "--workers", "0"], "0"),
        (&["source", "target", "--workers", "many"], "many"),
        (&["target", "source"], "SRC"),
        (&["source/file", "target"], "SRC"),
        (&["source", "source/file"], "DST"),
        (&["source", "source"], "same directory"),
        (&["source", "source/new/one"], "contains the other"),
        (&["source/inner", "source"], "contains the other"),
        (&["source", "link/new"], "contains the other"),
        (&["source", "target/new/../../source/inner"], "DST"),
    ];
    for (arguments, named) in cases {
        let mut mirror = program("mirror");
        let mirror = mirror.current_dir(pair.dir.path()).args(arguments);
        let ended = run(mirror);
        ended.assert_refused(2, named);
        let usage = ended.stderr.split_once("Usage: ");
        let named = |(_, usage): (&str, &str)| usage.starts_with("mirror ");
        assert!(usage.is_none_or(named), "{ended:?}");
    }
    assert_eq!(tree(pair.dir.path()), before);
}

#[test]
fn a_target_that_cannot_be_made_is_said_with_1() {
    let pair = Pair::new();
    pair.write("file", "one");
    fs::write(pair.dir.path().join("below"), "a file").unwrap();
    let ended = pair.run(program("mirror"));
    ended.assert_refused(1, "cannot create DST");
}

#[test]
fn without_arguments_the_crate_itself_is_mirrored() {
    let ended = run(&mut program("mirror"));
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("trees: equal"), "{ended:?}");
}
