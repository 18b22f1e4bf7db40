//! Deals the partitions to the members: evenly, with few moves, and everywhere the same.
//!
//! Each of `n` members gets `P / n` partitions, and `P % n` of them one more. A member keeps what
//! it owns up to that number. What nobody keeps goes to the member with room that has the highest
//! score for it (rendezvous hashing).
//!
//! The deal is stable while it is carried out: if some of the dealt partitions have been claimed
//! and others not yet, dealing again yields the same. For this the members that get one more are
//! chosen by name among those that own too many, not by how many they own, and partitions are
//! dealt in order.

use std::cmp::Reverse;

/// The index of the member that each partition is dealt to; empty if there is no member.
///
/// `members` are sorted names; `owners` has the index of each partition's present owner.
pub(crate) fn deal(members: &[&str], owners: &[Option<usize>]) -> Vec<usize> {
    if members.is_empty() {
        return Vec::new();
    }
    let names: Vec<u64> = members.iter().map(|name| fnv1a(name)).collect();
    let mut room = rooms(&names, owners);

    // Each owner keeps the partitions of its highest scores.
    let mut kept: Vec<(u16, usize)> = (0..)
        .zip(owners)
        .filter_map(|(partition, owner)| Some((partition, (*owner)?)))
        .collect();
    kept.sort_unstable_by_key(|&(partition, owner)| Reverse(score(names[owner], partition)));
    let mut dealt = vec![None; owners.len()];
    for (partition, owner) in kept {
        if room[owner] > 0 {
            room[owner] -= 1;
            dealt[usize::from(partition)] = Some(owner);
        }
    }

    (0..)
        .zip(dealt)
        .map(|(partition, keeper)| {
            keeper.unwrap_or_else(|| {
                let free = (0..names.len()).filter(|member| room[*member] > 0);
                let best = free.max_by_key(|member| (score(names[*member], partition), *member));
                // There is room for all partitions.
                let best = best.unwrap_or_default();
                room[best] = room[best].saturating_sub(1);
                best
            })
        })
        .collect()
}

/// How many partitions each member gets.
fn rooms(names: &[u64], owners: &[Option<usize>]) -> Vec<usize> {
    let (even, more) = (owners.len() / names.len(), owners.len() % names.len());
    let mut owned = vec![0; names.len()];
    for owner in owners.iter().flatten() {
        owned[*owner] += 1;
    }
    let mut first: Vec<usize> = (0..names.len()).collect();
    first.sort_unstable_by_key(|member| (owned[*member] <= even, names[*member], *member));
    let mut room = vec![even; names.len()];
    for member in &first[..more] {
        room[*member] += 1;
    }
    room
}

/// The 64-bit FNV-1a hash: all replicas have to compute the same, so it is not the hasher of std.
fn fnv1a(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Mixed by the finaliser of splitmix64: names and partitions that differ in a bit only score
/// independently.
fn score(name: u64, partition: u16) -> u64 {
    let mut x = name.wrapping_add(u64::from(partition).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
