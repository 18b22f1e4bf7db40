//! Long random walks with many faults. Each ends with a time without faults, in which everything
//! has to be owned again.

use std::collections::BTreeMap;

use super::world::{Move, World};

const WALKS: u64 = 3000;
const MOVES: u32 = 400;

/// Units of true time in which all is owned again: a lease to fence what has died, and a few
/// renewals.
const RECOVERY: u64 = 12;

#[test]
fn walks() {
    let mut events = BTreeMap::new();
    for seed in 0..WALKS {
        let mut random = fastrand::Rng::with_seed(seed);
        // At most a third faster than the slowest.
        let rates: Vec<u64> = (0..random.usize(2..=3))
            .map(|_| random.u64(6..=8))
            .collect();
        let mut world = World::new(random.u16(1..=3), &rates);
        let mut made = Vec::new();
        for _ in 0..MOVES {
            let next = choose(&world, &mut random);
            made.push(next.clone());
            world.make(next);
            for event in &world.events {
                *events.entry(*event).or_insert(0) += 1;
            }
            if let Some(wrong) = &world.wrong {
                panic!("seed {seed}, {rates:?}: {wrong} after {made:#?}");
            }
        }
        recover(&mut world);
        let wrong = &world.wrong;
        let quiet = world.is_quiet();
        assert!(
            quiet && wrong.is_none(),
            "seed {seed}: {wrong:?} {world:#?}"
        );
    }
}

fn choose(world: &World, random: &mut fastrand::Rng) -> Move {
    let moves = match random.u32(0..100) {
        0..8 => world.faults(),
        8..25 => world.free(),
        25..28 => Vec::new(),
        _ => world.prompt(),
    };
    random.choice(moves).unwrap_or(Move::Advance)
}

fn recover(world: &mut World) {
    world.heal();
    for _ in 0..RECOVERY {
        world.settle();
        while let Some(over) = world.handing_over() {
            world.make(over);
            world.settle();
        }
        world.make(Move::Advance);
    }
    world.settle();
}
