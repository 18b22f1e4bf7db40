//! All faults at all points within a horizon, up to a limited number of them.

use stateright::{Checker, Model, Property};

use super::moves::Move;
use super::world::{Event, World};

struct Explore {
    partitions: u16,
    /// Of the clocks, one list for each initial state.
    rates: Vec<Vec<u64>>,
    /// Replicas that are there in the beginning; the others join at any time.
    launched: usize,
    faults: u32,
    /// The highest epoch of a former bucket.
    former: u64,
    /// Which faults.
    which: fn(&Move) -> bool,
    horizon: u64,
    expected: Vec<Property<Explore>>,
}

impl Model for Explore {
    type State = World;
    type Action = Move;

    fn init_states(&self) -> Vec<World> {
        let settled = |rates: &Vec<u64>| {
            let mut world = World::new(self.partitions, rates);
            world.noted.fill(self.former);
            for replica in 0..self.launched {
                world.make(Move::Launch(replica));
                world.settle();
            }
            assert!(world.is_quiet(), "{world:#?}");
            world
        };
        self.rates.iter().map(settled).collect()
    }

    fn actions(&self, world: &World, moves: &mut Vec<Move>) {
        if world.wrong.is_some() {
            return;
        }
        match world.prompt().into_iter().next() {
            Some(prompt) => moves.push(prompt),
            None => {
                moves.extend(world.free());
                if world.time < self.horizon {
                    moves.push(Move::Advance);
                }
            }
        }
        if world.faults < self.faults {
            moves.extend(world.faults().into_iter().filter(self.which));
        }
    }

    fn next_state(&self, world: &World, what: Move) -> Option<World> {
        let mut world = world.clone();
        world.make(what);
        Some(world)
    }

    fn properties(&self) -> Vec<Property<Explore>> {
        let always = Property::always("one owner, rising epochs", |_, world: &World| {
            world.wrong.is_none()
        });
        let mut properties = vec![always];
        properties.extend(self.expected.iter().cloned());
        properties
    }
}

impl Explore {
    fn run(mut self) {
        // By day, which is a third of the states. The job `nats-long` explores all.
        if std::env::var_os("KEYQUEUE_NIGHT").is_none() {
            self.horizon -= 2;
        }
        let began = std::time::Instant::now();
        let checker = self.checker().threads(2).spawn_bfs().join();
        let (states, depth) = (checker.unique_state_count(), checker.max_depth());
        println!("{states} states, depth {depth}, {:.1?}", began.elapsed());
        for (name, path) in checker.discoveries() {
            if name == "one owner, rising epochs" {
                let wrong = path.last_state().wrong.clone();
                panic!("{wrong:?} after {:#?}", path.into_actions());
            }
        }
        checker.assert_properties();
    }
}

/// Each of these events happens.
macro_rules! sometimes {
    ($($event:ident),*) => {
        vec![$(Property::sometimes(stringify!($event), |_, world: &World| {
            world.events.contains(&Event::$event)
        })),*]
    };
}

/// Two replicas that start, with one fault of any kind.
fn base() -> Explore {
    Explore {
        partitions: 1,
        rates: vec![vec![6, 8], vec![8, 6]],
        launched: 0,
        faults: 1,
        former: 0,
        which: |_| true,
        horizon: 7,
        expected: Vec::new(),
    }
}

#[test]
fn an_owner_and_another_replica() {
    Explore {
        launched: 2,
        faults: 2,
        horizon: 6,
        expected: sometimes![TakenOver, Resumed],
        ..base()
    }
    .run();
}

#[test]
fn an_owner_whose_renewals_end_as_unknown() {
    Explore {
        rates: vec![vec![6, 8]],
        launched: 2,
        faults: 3,
        which: |fault| matches!(fault, Move::HoldAck(_) | Move::Stall(0) | Move::Pause(0)),
        horizon: 5,
        expected: sometimes![Moved],
        ..base()
    }
    .run();
}

#[test]
fn a_replica_joins_an_owner_of_two_partitions() {
    Explore {
        partitions: 2,
        launched: 1,
        expected: sometimes![TakenOver, Moved],
        ..base()
    }
    .run();
}

#[test]
fn two_replicas_start() {
    Explore {
        expected: sometimes![TakenOver, Adopted],
        ..base()
    }
    .run();
}

#[test]
fn three_replicas_and_two_partitions() {
    Explore {
        partitions: 2,
        rates: vec![vec![6, 8, 7], vec![8, 6, 7]],
        launched: 3,
        horizon: 8,
        expected: sometimes![TakenOver, Moved],
        ..base()
    }
    .run();
}

/// The bucket was made again with lower revisions, and its owners claim their partitions under higher epochs.
#[test]
fn two_replicas_start_with_a_bucket_whose_revisions_are_too_low() {
    Explore {
        former: 1_000_000,
        expected: sometimes![TakenOver, Raised],
        ..base()
    }
    .run();
}
