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

/// The index of the member that each partition is dealt to.
///
/// `members` are sorted names, one at least; `owners` has the index of each partition's present owner.
pub(crate) fn deal(members: &[&str], owners: &[Option<usize>]) -> Vec<usize> {
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

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::deal;

    fn names(members: usize) -> Vec<String> {
        (0..members)
            .map(|member| format!("replica-{member:02}.x.0"))
            .collect()
    }

    fn dealt(names: &[String], owners: &[Option<usize>]) -> Vec<usize> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        deal(&names, owners)
    }

    fn counts(members: usize, dealt: &[usize]) -> Vec<usize> {
        (0..members)
            .map(|member| dealt.iter().filter(|to| **to == member).count())
            .collect()
    }

    /// Some members, and an owner or none for each partition.
    fn owners() -> impl Strategy<Value = (usize, Vec<Option<usize>>)> {
        (1_usize..12).prop_flat_map(|members| {
            let owner = proptest::option::of(0..members);
            (Just(members), vec(owner, 1..100))
        })
    }

    proptest! {
        #[test]
        fn every_member_gets_its_share((members, owners) in owners()) {
            let dealt = dealt(&names(members), &owners);
            prop_assert_eq!(dealt.len(), owners.len());
            let even = owners.len() / members;
            for count in counts(members, &dealt) {
                prop_assert!(count == even || count == even + 1, "{} of {}", count, even);
            }
        }

        #[test]
        fn a_deal_stays_while_it_is_carried_out(
            (members, mut owners) in owners(),
            steps in vec((any::<prop::sample::Index>(), any::<bool>()), 0..200),
        ) {
            let names = names(members);
            let first = dealt(&names, &owners);
            for (partition, claimed) in steps {
                let partition = partition.index(owners.len());
                let to = Some(first[partition]);
                // What is owned by another member becomes free first.
                owners[partition] = match owners[partition] {
                    owner if owner == to => to,
                    Some(_) => None,
                    None if claimed => to,
                    None => None,
                };
                prop_assert_eq!(&dealt(&names, &owners), &first);
            }
        }

        #[test]
        fn a_join_and_a_leave_move_few(members in 1_usize..12, partitions in 1_usize..200) {
            let (few, more) = (names(members), names(members + 1));
            let before = dealt(&few, &vec![None; partitions]);
            let owners: Vec<_> = before.iter().copied().map(Some).collect();
            let joined = dealt(&more, &owners);
            let moved = before.iter().zip(&joined).filter(|(was, is)| was != is).count();
            prop_assert!(moved <= partitions / (members + 1), "{} moves", moved);

            // The last member leaves again.
            let owners: Vec<_> = joined.iter().map(|is| Some(*is).filter(|is| *is < members)).collect();
            let left = dealt(&few, &owners);
            let kept = |(owner, is): (&Option<usize>, &usize)| owner.is_none_or(|owner| owner == *is);
            prop_assert!(owners.iter().zip(&left).all(kept));
        }
    }

    /// All replicas have to compute the same, whatever version they run.
    #[test]
    fn the_deal_is_fixed() {
        let dealt = dealt(&names(3), &[None; 12]);
        assert_eq!(dealt, [1, 2, 2, 2, 0, 2, 1, 0, 0, 1, 0, 1]);
    }
}
