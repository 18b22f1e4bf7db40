//! The witness: what it is told, and what follows.
//!
//! A member sends lines, and waits for the reply to each, which is an empty line:
//!
//! | line | |
//! | --- | --- |
//! | `begin ACCOUNT NUMBER ATTEMPT` | a handler begins |
//! | `done ACCOUNT NUMBER` | and has succeeded |
//! | `failed ACCOUNT NUMBER` | or failed, or was cancelled |
//! | `given ACCOUNT NUMBER` | or failed for the last time: there has to be a dead letter |
//!
//! When a connection ends, its member is dead, and what it had begun has ended.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use anyhow::{Context, Result, bail};

#[derive(Clone, Debug)]
pub struct Witness {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    accounts: HashMap<String, Account>,
    seen: Seen,
    members: u64,
    /// Given up, and not found as dead letters.
    given: BTreeSet<(String, u64)>,
}

#[derive(Debug, Default)]
struct Account {
    /// Who handles it, and which posting: at most one.
    running: Vec<(u64, u64)>,
    /// All below have succeeded, or are dead letters.
    next: u64,
    /// Those beyond, which have come out of order.
    beyond: BTreeSet<u64>,
    /// The one that has succeeded, or was given up, last.
    last: Option<u64>,
}

/// What was seen. There should be no violations.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub begun: u64,
    pub done: u64,
    pub failed: u64,
    /// Begun again after it had succeeded.
    pub repeated: u64,
    pub most_attempts: u64,
    /// The members that have begun something.
    pub active: BTreeSet<u64>,
    pub violations: Vec<String>,
}

impl Witness {
    /// Listens, in threads that end with the process.
    pub fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let witness = Witness {
            address: listener.local_addr()?,
            state: Arc::default(),
        };
        let of_thread = witness.clone();
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let witness = of_thread.clone();
                thread::spawn(move || witness.listen(stream));
            }
        });
        Ok(witness)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn listen(&self, stream: TcpStream) {
        let member = {
            let mut state = self.lock();
            state.members += 1;
            state.members
        };
        _ = stream.set_nodelay(true);
        if let Ok(mut replies) = stream.try_clone() {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                self.lock().hear(member, &line);
                if replies.write_all(b"\n").is_err() {
                    break;
                }
            }
        }
        self.lock().bury(member);
    }

    /// What was seen until now.
    pub fn seen(&self) -> Seen {
        self.lock().seen.clone()
    }

    /// The postings that have succeeded.
    pub fn finished(&self) -> u64 {
        let state = self.lock();
        let of_account = |account: &Account| account.next + account.beyond.len() as u64;
        state.accounts.values().map(of_account).sum()
    }

    /// Notes that a posting was found as a dead letter.
    pub fn dead_letter(&self, account: &str, number: u64) {
        let mut state = self.lock();
        if !state.given.remove(&(account.to_owned(), number)) {
            let violation =
                format!("{account}: {number} is a dead letter, and was not given up: LETTER");
            state.seen.violations.push(violation);
        }
    }

    /// Adds a violation for each posting that was produced and has not succeeded: `produced` has the number of each account's.
    pub fn judge(&self, produced: &BTreeMap<String, u64>) -> Seen {
        let state = self.lock();
        let mut seen = state.seen.clone();
        for (name, number) in &state.given {
            seen.violations.push(format!(
                "{name}: {number} was given up, and is no dead letter: LOST"
            ));
        }
        for (name, count) in produced {
            let next = state.accounts.get(name).map_or(0, |account| account.next);
            if next != *count {
                seen.violations.push(format!(
                    "{name}: {count} postings, of which {next} in a row have succeeded: LOST"
                ));
            }
        }
        seen
    }

    /// The accounts whose last posting to end was an older one, repeated after the newest: once all is committed, that is out of order.
    pub fn old(&self, produced: &BTreeMap<String, u64>) -> Vec<String> {
        let state = self.lock();
        let is_old = |(name, count): &(&String, &u64)| {
            let last = state.accounts.get(*name).and_then(|account| account.last);
            last.is_some_and(|last| last + 1 != **count)
        };
        let old = produced.iter().filter(is_old);
        old.map(|(name, _)| name.clone()).collect()
    }
}

impl State {
    /// Notes what a line says; one that it does not understand is a violation.
    fn hear(&mut self, member: u64, line: &str) {
        if let Err(error) = self.note(member, line) {
            let violation = format!("{line}: {error}: UNKNOWN");
            self.seen.violations.push(violation);
        }
    }

    fn note(&mut self, member: u64, line: &str) -> Result<()> {
        let mut words = line.split(' ');
        let mut word = || words.next().context("a word is missing");
        let (verb, name, number) = (word()?, word()?, word()?.parse::<u64>()?);
        let account = self.accounts.entry(name.to_owned()).or_default();
        let seen = &mut self.seen;
        match verb {
            "begin" => {
                let attempt = words.next().context("no attempt")?.parse::<u64>()?;
                seen.begun += 1;
                seen.active.insert(member);
                seen.most_attempts = seen.most_attempts.max(attempt);
                seen.repeated += u64::from(account.is_done(number));
                if let Some((other, running)) = account.running.last() {
                    seen.violations.push(format!("{name}: {number} of member {member} began while {running} of {other} ran: OVERLAP"));
                }
                account.running.push((member, number));
                if number > account.next {
                    seen.violations.push(format!(
                        "{name}: {number} of member {member} began before {} had ended: DISORDER",
                        account.next
                    ));
                }
            }
            "done" | "failed" | "given" => {
                let running = account.running.len();
                account.running.retain(|other| *other != (member, number));
                if account.running.len() == running {
                    seen.violations.push(format!(
                        "{name}: {number} of member {member} ended, and had not begun: DISORDER"
                    ));
                }
                if verb == "failed" {
                    seen.failed += 1;
                    return Ok(());
                }
                if verb == "given" {
                    seen.failed += 1;
                    self.given.insert((name.to_owned(), number));
                } else {
                    seen.done += 1;
                }
                account.finish(number);
                account.last = Some(number);
            }
            verb => bail!("what is {verb}?"),
        }
        Ok(())
    }

    fn bury(&mut self, member: u64) {
        for account in self.accounts.values_mut() {
            account.running.retain(|(of, _)| *of != member);
        }
    }
}

impl Account {
    fn is_done(&self, number: u64) -> bool {
        number < self.next || self.beyond.contains(&number)
    }

    fn finish(&mut self, number: u64) {
        if !self.is_done(number) {
            self.beyond.insert(number);
        }
        while self.beyond.remove(&self.next) {
            self.next += 1;
        }
    }
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{} begun by {} members, {} succeeded, {} failed or cancelled, {} repeated",
            self.begun,
            self.active.len(),
            self.done,
            self.failed,
            self.repeated
        )?;
        // The last word is the kind.
        let mut kinds = BTreeMap::new();
        for violation in &self.violations {
            let kind = violation.rsplit(' ').next().unwrap_or_default();
            *kinds.entry(kind).or_insert(0) += 1;
        }
        writeln!(f, "{} violations {kinds:?}", self.violations.len())?;
        for violation in self.violations.iter().take(20) {
            writeln!(f, "VIOLATION {violation}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_repeated_out_of_order_is_seen_at_the_end() {
        let witness = Witness::start().unwrap();
        let hear = |numbers: &[u64]| {
            for number in numbers {
                witness.lock().hear(1, &format!("begin a {number} 1"));
                witness.lock().hear(1, &format!("done a {number}"));
            }
        };
        let produced = BTreeMap::from([("a".to_owned(), 3)]);
        hear(&[0, 1, 2, 1, 2]);
        assert!(witness.old(&produced).is_empty());
        hear(&[1]);
        assert_eq!(witness.old(&produced), ["a"]);
        assert!(witness.judge(&produced).violations.is_empty());
    }
}
