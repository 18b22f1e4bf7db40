//! Long random walks with many faults. Each ends with a time without faults, in which everything
//! has to be owned again.

use std::collections::BTreeMap;

use super::moves::Move;
use super::world::World;

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
        let former = random.choice([0, 1_000_000]).unwrap_or(0);
        world.noted.fill(former);
        // Of a hundred moves.
        let (faults, free) = (random.u32(1..=8), random.u32(2..=20));
        let mut made = Vec::new();
        for _ in 0..MOVES {
            let next = choose(&world, faults, free, &mut random);
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
        let (quiet, wrong) = (world.is_quiet(), &world.wrong);
        assert!(
            quiet && wrong.is_none(),
            "seed {seed}: {wrong:?} {world:#?}"
        );
    }
    println!("{events:?} in {WALKS} walks");
    assert_eq!(events.len(), 5, "{events:?}");
}

fn choose(world: &World, faults: u32, free: u32, random: &mut fastrand::Rng) -> Move {
    let moves = match random.u32(0..100) {
        share if share < faults => world.faults(),
        share if share < faults + free => world.free(),
        // Everything is slow.
        97.. => Vec::new(),
        _ => world.prompt(),
    };
    random.choice(moves).unwrap_or(Move::Advance)
}

fn recover(world: &mut World) {
    world.heal();
    for _ in 0..RECOVERY {
        world.settle();
        world.make(Move::Advance);
    }
    world.settle();
}

/// The first replica that reaches the server again does not fence the others.
#[test]
fn an_absence_of_the_server_ends_no_session() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let rates: Vec<u64> = (0..3).map(|_| random.u64(6..=8)).collect();
        let mut world = World::new(4, &rates);
        for replica in 0..rates.len() {
            world.make(Move::Launch(replica));
        }
        recover(&mut world);
        let begun = world.begun.clone();
        for _ in 0..random.u64(1..10) {
            world.make(Move::Advance);
            for replica in 0..rates.len() {
                let tick = Move::Tick(replica);
                if world.prompt().contains(&tick) {
                    world.make(tick);
                }
            }
            world.lose_writes();
        }
        for _ in 0..RECOVERY {
            while let Some(next) = random.choice(world.prompt()) {
                world.make(next);
            }
            world.make(Move::Advance);
        }
        world.settle();
        assert!(world.is_quiet(), "seed {seed}: {world:#?}");
        assert_eq!(world.begun, begun, "seed {seed}");
    }
}
