//! A stand-in for the outside world: the controller tells a bank each account's balance.
//!
//! It also is the witness of the demonstration. A clerk is at the bank's counter from the beginning of a
//! reconciliation to its end, or until its process is killed: then the system closes the connection. Two clerks for one account at once are what a controller must never send.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Result;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, BufStream};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

/// The bank's books, and what it saw.
#[derive(Debug, Default)]
pub struct Books {
    pub balances: BTreeMap<String, i64>,
    /// The reconciliations in the order in which they began: account and clerk.
    pub visits: Vec<(String, String)>,
    /// The accounts that two clerks came for at once.
    pub collisions: Vec<String>,
    /// The most clerks of one namespace at once.
    pub crowd: usize,
    /// How many times the bank did not take a balance.
    pub refused: usize,
    pub closed: usize,
    present: HashMap<String, usize>,
}

impl Books {
    fn enter(&mut self, account: &str, clerk: &str) {
        self.visits.push((account.to_owned(), clerk.to_owned()));
        let clerks = self.present.entry(account.to_owned()).or_default();
        *clerks += 1;
        if *clerks > 1 {
            self.collisions.push(account.to_owned());
        }
        let namespace = account.split('/').next().unwrap_or_default();
        self.crowd = self.crowd.max(self.crowd(namespace));
    }

    fn leave(&mut self, account: String) {
        if let Entry::Occupied(mut clerks) = self.present.entry(account) {
            *clerks.get_mut() -= 1;
            if *clerks.get() == 0 {
                clerks.remove();
            }
        }
    }

    /// How many visits each account had.
    pub fn visited(&self) -> HashMap<String, usize> {
        let mut visited = HashMap::new();
        for (account, _) in &self.visits {
            *visited.entry(account.clone()).or_default() += 1;
        }
        visited
    }

    /// The clerks at the counter for this namespace.
    fn crowd(&self, namespace: &str) -> usize {
        let of = |account: &&String| account.split('/').next() == Some(namespace);
        self.present.keys().filter(of).count()
    }
}

/// A bank on a free port of this machine.
#[derive(Debug)]
pub struct Bank {
    pub address: SocketAddr,
    books: Arc<Mutex<Books>>,
    /// Dropping it aborts the task and its connections.
    _counter: JoinSet<()>,
}

impl Bank {
    /// Opens. Each request takes the bank `work`; every `refuse`th balance it does not take (0: it takes all).
    pub async fn open(work: Duration, refuse: usize) -> Result<Bank> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let books = Arc::new(Mutex::new(Books::default()));
        let mut counter = JoinSet::new();
        counter.spawn({
            let books = Arc::clone(&books);
            async move {
                let mut clerks = JoinSet::new();
                while let Ok((stream, _)) = listener.accept().await {
                    clerks.spawn(serve(stream, Arc::clone(&books), work, refuse));
                }
            }
        });
        Ok(Bank {
            address,
            books,
            _counter: counter,
        })
    }

    pub fn books(&self) -> MutexGuard<'_, Books> {
        lock(&self.books)
    }
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(stream: TcpStream, books: Arc<Mutex<Books>>, work: Duration, refuse: usize) {
    let mut lines = BufReader::new(stream).lines();
    let mut account = None;
    // An error is a connection that was cut: the clerk is gone.
    while let Ok(Some(line)) = lines.next_line().await {
        if account.is_some() {
            sleep(work).await;
        }
        let reply = answer(&line, &mut account, &mut lock(&books), refuse);
        if lines.get_mut().write_all(reply).await.is_err() {
            break;
        }
    }
    if let Some(account) = account {
        lock(&books).leave(account);
    }
}

/// The protocol: `enter <clerk> <account>`, then `post <balance>` or `close`, then `leave`.
fn answer(
    line: &str,
    entered: &mut Option<String>,
    books: &mut Books,
    refuse: usize,
) -> &'static [u8] {
    let words: Vec<_> = line.split(' ').collect();
    match (words.as_slice(), entered.clone()) {
        (["enter", clerk, account], None) => {
            books.enter(account, clerk);
            *entered = Some((*account).to_owned());
            b"welcome\n"
        }
        (["post", balance], Some(account)) => {
            if refuse > 0 && books.visits.len().is_multiple_of(refuse) {
                books.refused += 1;
                return b"the bank is busy\n";
            }
            books
                .balances
                .insert(account, balance.parse().unwrap_or_default());
            b"thank you\n"
        }
        (["close"], Some(account)) => {
            books.closed += usize::from(books.balances.remove(&account).is_some());
            b"thank you\n"
        }
        (["leave"], Some(account)) => {
            books.leave(account);
            *entered = None;
            b"goodbye\n"
        }
        _ => b"pardon?\n",
    }
}

/// A clerk's visit at the counter, for one account.
#[derive(Debug)]
pub struct Visit(BufStream<TcpStream>);

/// The bank did not do it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("the bank cannot be reached: {0}")]
    Unreachable(#[from] std::io::Error),
    #[error("{0}")]
    Refused(String),
}

impl Visit {
    pub async fn begin(bank: SocketAddr, clerk: &str, account: &str) -> Result<Visit, Error> {
        let mut visit = Visit(BufStream::new(TcpStream::connect(bank).await?));
        visit
            .ask(&format!("enter {clerk} {account}"), "welcome")
            .await?;
        Ok(visit)
    }

    pub async fn post(&mut self, balance: i64) -> Result<(), Error> {
        self.ask(&format!("post {balance}"), "thank you").await
    }

    /// The account is closed. It is no error if there is none.
    pub async fn close(&mut self) -> Result<(), Error> {
        self.ask("close", "thank you").await
    }

    /// Waits for the bank's goodbye: the next clerk may come for this account then.
    pub async fn end(mut self) -> Result<(), Error> {
        self.ask("leave", "goodbye").await
    }

    async fn ask(&mut self, request: &str, expected: &str) -> Result<(), Error> {
        self.0.write_all(format!("{request}\n").as_bytes()).await?;
        self.0.flush().await?;
        let mut reply = String::new();
        self.0.read_line(&mut reply).await?;
        let reply = reply.trim_end();
        if reply != expected {
            return Err(Error::Refused(reply.to_owned()));
        }
        Ok(())
    }
}
