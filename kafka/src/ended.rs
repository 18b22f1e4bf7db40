//! What a run has left.

use std::fmt;

/// How a run ended, after its signal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Ended {
    /// Records whose handlers succeeded.
    pub finished: u64,
    /// Records that were written as dead letters.
    pub dead_letters: u64,
    /// Records that were skipped, as their topic says.
    pub skipped: u64,
    /// Records that were in memory at the end and are not finished: they had not begun, wait for a retry, or were cancelled then. Others
    /// read them.
    pub left: usize,
    /// Records whose handlers were cancelled in this run, because a limit had passed or an assignment was lost: others repeat them.
    pub cancelled: u64,
    /// Partitions whose last commit failed: what was finished there since the last commit that succeeded is repeated.
    pub uncommitted: usize,
    /// The assignment was lost at the end, so that nothing could be committed.
    pub is_lost: bool,
}

/// Writes what happened: `100 finished, 2 dead letters, 0 skipped; 7 left to others, 0 cancelled`.
impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ended {
            finished,
            dead_letters,
            skipped,
            left,
            cancelled,
            uncommitted,
            is_lost,
        } = self;
        write!(
            f,
            "{finished} finished, {dead_letters} dead letters, {skipped} skipped; {left} left to others, {cancelled} cancelled"
        )?;
        if *uncommitted > 0 {
            write!(f, "; the last commit of {uncommitted} partitions failed")?;
        }
        if *is_lost {
            f.write_str("; the assignment was lost, and nothing was committed at the end")?;
        }
        Ok(())
    }
}
