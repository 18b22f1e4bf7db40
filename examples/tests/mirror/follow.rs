//! Runs that follow the source, until they are interrupted.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::thread;

use crate::programs::{Running, program};
use crate::support::{Pair, Summary, TOO_LARGE, interrupt, tree, until, with_small_disk};

#[test]
fn what_changes_while_it_is_followed_is_mirrored() {
    let pair = Pair::new();
    pair.write("old/a/b", "one");
    let watching = pair.watch(program("mirror"));
    pair.settle();

    pair.write("old/a/b", "changed");
    pair.write("new/c/d/e", "made with the directories above it");
    pair.settle();

    // A directory that comes with what is in it, and one that goes.
    let aside = pair.dir.path().join("aside");
    fs::create_dir_all(aside.join("x/y")).unwrap();
    fs::write(aside.join("x/y/z"), "moved in").unwrap();
    fs::rename(&aside, pair.source().join("in")).unwrap();
    fs::rename(pair.source().join("old"), &aside).unwrap();
    pair.settle();

    // The renamed directory is watched under its new name.
    fs::rename(pair.source().join("in"), pair.source().join("in again")).unwrap();
    pair.settle();
    pair.write("in again/x/y/z", "changed, too");
    symlink("in again", pair.source().join("link")).unwrap();
    fs::remove_dir_all(pair.source().join("new")).unwrap();
    pair.settle();

    let ended = interrupt(watching, 0);
    assert!(Summary::of(&ended).0.contains("trees: equal"));
    pair.assert_equal();
}

#[test]
fn a_burst_of_writes_to_one_file_is_few_copies() {
    const WRITES: u64 = 2000;
    let pair = Pair::new();
    let watching = pair.watch(program("mirror"));
    for write in 0..WRITES {
        pair.write("file", write.to_string());
    }
    pair.settle();

    let ended = interrupt(watching, 0);
    let [events, delivered] = Summary::of(&ended).get(["events in", "delivered"]);
    assert!(events >= WRITES, "{ended:?}");
    // One, but for pauses that a busy machine makes.
    assert!(delivered < WRITES / 20, "{ended:?}");
    pair.assert_equal();
}

#[test]
fn files_that_come_and_go_leave_equal_trees_behind() {
    let pair = Pair::new();
    let watching = pair.watch(program("mirror"));
    thread::scope(|scope| {
        for churner in 0..3 {
            let pair = &pair;
            scope.spawn(move || {
                for round in 0..60 {
                    let directory = format!("{churner}/{}", round % 3);
                    for file in 0..5 {
                        pair.write(&format!("{directory}/{file}"), format!("{round}"));
                    }
                    let directory = pair.source().join(directory);
                    match round % 4 {
                        0 => fs::remove_dir_all(directory).unwrap(),
                        1 => fs::remove_file(directory.join("1")).unwrap(),
                        2 => fs::rename(directory.join("2"), directory.join("3")).unwrap(),
                        _ => {
                            let renamed = directory.with_extension(format!("{round}"));
                            fs::rename(directory, renamed).unwrap();
                        }
                    }
                }
            });
        }
    });
    pair.settle();
    interrupt(watching, 0);
    pair.assert_equal();
}

#[test]
fn an_interrupt_first_finishes_what_was_changed_before_it() {
    let pair = Pair::new();
    let watching = pair.watch(program("mirror"));
    for file in 0..200 {
        pair.write(&format!("{}/{file}", file % 5), file.to_string());
    }
    let ended = interrupt(watching, 0);
    assert_eq!(Summary::of(&ended).get(["failed"]), [0]);
    pair.assert_equal();
}

/// Follows on a small disk, and has begun to fail on the file: another beside it, written later, is
/// there.
fn fails_on(pair: &Pair, file: &str) -> Running {
    let watching = pair.watch(with_small_disk());
    let other = Path::new(file).with_file_name("other");
    pair.write(file, TOO_LARGE);
    pair.write(other.to_str().unwrap(), "small");
    until("the other file", || pair.target().join(&other).exists());
    watching
}

#[test]
fn a_path_that_failed_is_whole_again_after_a_change_that_mends_it() {
    let pair = Pair::new();
    let watching = fails_on(&pair, "file");
    pair.write("file", "small now");
    pair.settle();
    let ended = interrupt(watching, 0);
    assert_eq!(Summary::of(&ended).get(["failed"]), [0]);
}

#[test]
fn an_interrupt_while_a_path_fails_ends_with_1() {
    let pair = Pair::new();
    let watching = fails_on(&pair, "file");
    let ended = interrupt(watching, 1);
    let told = "failed: file: cannot copy";
    assert!(ended.stderr.contains(told), "{ended:?}");
}

#[test]
fn a_source_that_goes_away_deletes_nothing() {
    let pair = Pair::new();
    pair.write("a/b", "one");
    let mut watching = pair.watch(program("mirror"));
    pair.settle();
    let before = tree(&pair.target());
    fs::rename(pair.source(), pair.dir.path().join("unmounted")).unwrap();
    watching.until_it_says("is gone; DST stays as it is\n");
    let ended = interrupt(watching, 1);
    let told = "the source directory is gone";
    assert!(ended.stderr.contains(told), "{ended:?}");
    assert_eq!(tree(&pair.target()), before);
}

#[test]
fn a_source_that_comes_back_is_followed_again() {
    let pair = Pair::new();
    let mut watching = pair.watch(program("mirror"));
    let aside = pair.dir.path().join("unmounted");
    fs::rename(pair.source(), &aside).unwrap();
    watching.until_it_says("is gone; DST stays as it is\n");
    fs::write(aside.join("a"), "changed meanwhile").unwrap();
    fs::rename(&aside, pair.source()).unwrap();
    watching.until_it_says("is back\n");
    pair.settle();
    pair.write("b/c", "changed afterwards");
    pair.settle();
    interrupt(watching, 0);
}

#[test]
fn a_retry_below_what_became_a_link_touches_nothing_outside() {
    let pair = Pair::new();
    let outside = pair.target().with_file_name("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("file"), "kept").unwrap();
    let watching = fails_on(&pair, "directory/file");

    // While the retries of the file go on: a rename notifies the directory alone. Seen from the
    // source the link is broken, from the target it is not.
    let directory = pair.source().join("directory");
    fs::rename(&directory, pair.dir.path().join("aside")).unwrap();
    symlink("../outside", directory).unwrap();
    pair.settle();

    interrupt(watching, 0);
    pair.assert_equal();
    assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "kept");
}
