//! The slab compared with a plain vector, for keys of every size and alignment, with its chunks
//! counted.

use std::collections::BTreeMap;
use std::fmt::Debug;

use proptest::prelude::*;

use super::*;
use crate::keys::hash::ShortHash;
use crate::keys::state::State;
use crate::scaled::scaled;

fn insert<K, V>(slab: &mut Slab<K, V>, key: K) -> NodeRef<K> {
    slab.insert(Node::new(ShortHash::of(0), State::Idle, false, key))
}

/// Fills this many chunks.
fn fill(slab: &mut Slab<u64, ()>, chunks: usize) -> Vec<NodeRef<u64>> {
    let keys = 0..(chunks * slab.slots as usize) as u64;
    keys.map(|key| insert(slab, key)).collect()
}

/// Removes a node, which the caller has inserted and does not use again.
fn remove<K, V>(slab: &mut Slab<K, V>, node: NodeRef<K>) -> (K, Option<V>) {
    // SAFETY: by the caller's promise.
    let (key, carried) = unsafe { slab.remove(node) };
    (key, carried.and_then(|carried| carried.take_waiting()))
}

fn remove_all<K>(slab: &mut Slab<K, ()>, nodes: impl IntoIterator<Item = NodeRef<K>>) {
    for node in nodes {
        remove(slab, node);
    }
}

fn chunk_of<K>(node: NodeRef<K>) -> usize {
    Slab::<K, ()>::chunk_of(node).addr().get()
}

/// The nodes in use of each chunk on the open list.
fn open_chunks<K, V>(slab: &Slab<K, V>) -> BTreeMap<usize, usize> {
    let mut open = BTreeMap::new();
    let mut at = slab.open;
    while let Some(chunk) = at {
        // SAFETY: chunks on the open list are alive.
        let head = unsafe { &chunk.as_ref().head };
        let twice = open.insert(chunk.addr().get(), head.live as usize);
        assert!(twice.is_none(), "a chunk is on the list twice");
        at = head.next;
    }
    open
}

/// The numbers without a chunk. Checks that each chunk is in the list under its own number.
fn vacant<K, V>(slab: &Slab<K, V>) -> usize {
    let mut vacant = 0;
    for (number, chunk) in (0..).zip(&slab.chunks) {
        match NonNull::new(*chunk) {
            // SAFETY: chunks in the list are alive.
            Some(chunk) => assert_eq!(unsafe { chunk.as_ref() }.head.number, number),
            None => vacant += 1,
        }
    }
    vacant
}

/// Checks that chunks and nodes agree after [`Slab::free_empty`]: full chunks are off the list, others on
/// it, and at most one is empty.
fn assert_consistent<K, V>(slab: &Slab<K, V>, nodes: impl Iterator<Item = NodeRef<K>>) {
    let mut in_use = BTreeMap::<usize, usize>::new();
    for node in nodes {
        // SAFETY: in the slab.
        let again = unsafe { slab.node(slab.index_of(node)) };
        assert_eq!(again.0, node.0, "another node is found by its index");
        *in_use.entry(chunk_of(node)).or_default() += 1;
    }
    let open = open_chunks(slab);
    let slots = slab.slots as usize;
    for (chunk, live) in &open {
        assert!(*live < slots, "a full chunk is on the open list");
        assert_eq!(in_use.get(chunk).copied().unwrap_or(0), *live);
    }
    for (chunk, in_use) in &in_use {
        let full = *in_use == slots;
        assert_eq!(full, !open.contains_key(chunk), "{in_use} nodes in use");
    }
    vacant(slab);
    let empty = open.values().filter(|live| **live == 0).count();
    assert!(empty <= 1, "{empty} empty chunks");
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Insert { many: usize },
    Remove { many: usize, from: usize },
    Shrink,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let many = || prop_oneof![3 => 1..8_usize, 2 => 1..400_usize];
    let op = prop_oneof![
        5 => many().prop_map(|many| Op::Insert { many }),
        5 => (many(), any::<usize>()).prop_map(|(many, from)| Op::Remove { many, from }),
        1 => Just(Op::Shrink),
    ];
    let most = if cfg!(miri) { 4 } else { 40 };
    prop::collection::vec(op, 1..most)
}

const SIDE_DATA: [SideData; 8] = {
    let mut all = [SideData {
        timed: false,
        seated: false,
        carries: false,
    }; 8];
    let mut n = 0;
    while n < all.len() {
        all[n] = SideData {
            timed: n & 1 != 0,
            seated: n & 2 != 0,
            carries: n & 4 != 0,
        };
        n += 1;
    }
    all
};

/// Runs `ops` with keys made by `make`, and compares with a vector.
fn agrees_with_a_vector<K: PartialEq + Debug>(ops: &[Op], make: impl Fn(usize) -> K) {
    for side_data in SIDE_DATA {
        agrees::<_, u8>(Slab::new(0, side_data), ops, &make);
        // Aligned to more than nodes are.
        agrees::<_, u128>(Slab::new(0, side_data), ops, &make);
    }
}

fn agrees<K: PartialEq + Debug, V: From<u8> + PartialEq + Debug>(
    mut slab: Slab<K, V>,
    ops: &[Op],
    make: impl Fn(usize) -> K,
) {
    let value = |number: usize| V::from(number as u8);
    let removed = |carries: bool, number| (make(number), carries.then(|| value(number)));
    let mut model: Vec<(NodeRef<K>, usize)> = Vec::new();
    let mut made = 0;
    for op in ops {
        match *op {
            Op::Insert { many } => {
                for _ in 0..many {
                    let node = insert(&mut slab, make(made));
                    if slab.side_data.timed {
                        // SAFETY: just inserted into a slab that has times.
                        unsafe { times_of(node).as_ref() }.queued(made as u64);
                    }
                    if slab.side_data.seated {
                        let seat = seat_of(node, slab.side_data.timed);
                        // SAFETY: just inserted into a slab that has seats.
                        unsafe { seat.as_ref() }.deliver(made as u8 % 8, false);
                    }
                    if let Some(carried) = slab.carried_of(node) {
                        // SAFETY: just inserted into a slab that has room for it.
                        unsafe { carried.as_ref() }.waiting.lock().load = value(made).into();
                    }
                    model.push((node, made));
                    made += 1;
                }
            }
            Op::Remove { many, from } => {
                for step in 0..many.min(model.len()) {
                    let at = from.wrapping_add(step * 7) % model.len();
                    let (node, number) = model.swap_remove(at);
                    assert_eq!(
                        remove(&mut slab, node),
                        removed(slab.side_data.carries, number)
                    );
                }
                slab.free_empty(1);
            }
            Op::Shrink => slab.shrink(),
        }
        assert_consistent(&slab, model.iter().map(|(node, _)| *node));
        for (node, number) in &model {
            assert!(node.0.is_aligned());
            if slab.side_data.timed {
                assert!(times_of(*node).is_aligned());
                // SAFETY: in the slab, which has times.
                let times = unsafe { times_of(*node).as_ref() };
                assert_eq!(times.queue_time(), (*number as u64, 0));
            }
            if slab.side_data.seated {
                let seat = seat_of(*node, slab.side_data.timed);
                assert!(seat.is_aligned());
                // SAFETY: in the slab, which has seats.
                assert_eq!(unsafe { seat.as_ref() }.delivered(), *number as u8 % 8);
            }
            if let Some(carried) = slab.carried_of(*node) {
                assert!(carried.is_aligned());
                // SAFETY: in the slab.
                let waiting = unsafe { carried.as_ref() }.waiting.lock();
                assert_eq!(waiting.load.value, Some(value(*number)));
            }
            // SAFETY: in the slab.
            let node = unsafe { node.get() };
            assert_eq!(&node.key, &make(*number));
        }
    }
    for (node, number) in model {
        assert_eq!(
            remove(&mut slab, node),
            removed(slab.side_data.carries, number)
        );
    }
    // C10: all memory but one chunk is freed, and that one at the next shrink.
    slab.free_empty(1);
    assert!(open_chunks(&slab).len() <= 1, "empty chunks were kept");
    slab.shrink();
    assert!(slab.open.is_none() && slab.chunks.is_empty());
}

#[derive(Debug, PartialEq)]
#[repr(align(64))]
struct CacheLine(usize);

#[derive(Debug, PartialEq)]
#[repr(align(8192))]
struct TwoPages(usize);

proptest! {
    #![proptest_config(ProptestConfig::with_cases(scaled(64) as u32))]

    #[test]
    fn keys_come_back_as_they_went_in(ops in ops()) {
        agrees_with_a_vector(&ops, |number| number as u8);
        agrees_with_a_vector(&ops, |number| [number as u64; 100]);
        agrees_with_a_vector(&ops, CacheLine);
        agrees_with_a_vector(&ops, |_| ());
        agrees_with_a_vector(&ops, |number| format!("namespace/{number}"));
    }
}

#[test]
fn keys_aligned_beyond_a_chunk_of_the_usual_size_fit() {
    let steps = [
        Op::Insert { many: 50 },
        Op::Remove { many: 49, from: 3 },
        Op::Insert { many: 20 },
    ];
    agrees_with_a_vector(&steps, TwoPages);
}

fn assert_layout<K>() {
    let name = std::any::type_name::<K>();
    for side_data in SIDE_DATA {
        let slab = Slab::<K, ()>::new(0, side_data);
        let layout = slab.layout();
        assert!(slab.slots as usize >= FEWEST_NODES, "{name}");
        assert!(
            layout.size() + ALLOCATOR_HEADER <= Slab::<K, ()>::ALIGN,
            "{name}"
        );
        assert_eq!(layout.align(), Slab::<K, ()>::ALIGN, "{name}");
        let half = Slab::<K, ()>::ALIGN / 2 - Slab::<K, ()>::FIRST_SLOT - ALLOCATOR_HEADER;
        assert!(
            layout.align() == CHUNK_BYTES
                || half / Slab::<K, ()>::stride_with(SideData::ALL) < FEWEST_NODES,
            "{name}: half a chunk would do"
        );
        assert_eq!(
            Slab::<K, ()>::FIRST_SLOT % align_of::<Slot<K>>(),
            0,
            "{name}"
        );
        assert_eq!(slab.stride as usize % align_of::<Slot<K>>(), 0, "{name}");
    }
    let numbers = 1_u64 << (u32::BITS - Slab::<K, ()>::DISTANCE_BITS);
    let room = numbers * Slab::<K, ()>::ALIGN as u64;
    assert_eq!(room, 32 << 30, "chunks in a shard, {name}");
}

#[test]
fn a_chunk_lies_in_one_aligned_block_whatever_the_key() {
    assert_layout::<()>();
    assert_layout::<u8>();
    assert_layout::<u64>();
    assert_layout::<String>();
    assert_layout::<[u64; 57]>();
    // Sixteen of them, with their times, take two pages to the byte.
    assert_layout::<[u64; 58]>();
    assert_layout::<[u64; 100]>();
    assert_layout::<[u8; 100_000]>();
    assert_layout::<CacheLine>();
    assert_layout::<TwoPages>();
}

// C10: the list of the chunks goes with them, and a number is used again before the list grows.
#[test]
fn numbers_of_chunks_given_back_are_used_again_or_forgotten() {
    let mut slab = Slab::<u64, ()>::new(0, SideData::default());
    let full = slab.slots as usize;
    let mut nodes = fill(&mut slab, 8);
    // All but the nodes of the last chunk but one: its number outlives those below and above it.
    let mut kept = nodes.drain(6 * full..7 * full).collect::<Vec<_>>();
    remove_all(&mut slab, nodes);
    slab.free_empty(1);
    assert_consistent(&slab, kept.iter().copied());
    // The first chunk is the spare one, and the number of the last is forgotten.
    assert_eq!((slab.chunks.len(), vacant(&slab)), (7, 5));
    slab.shrink();
    assert_consistent(&slab, kept.iter().copied());
    assert_eq!((slab.chunks.len(), vacant(&slab)), (7, 6));
    kept.extend(fill(&mut slab, 6));
    assert_eq!((slab.chunks.len(), vacant(&slab)), (7, 0));
    assert_consistent(&slab, kept.iter().copied());
    remove_all(&mut slab, kept);
    slab.shrink();
    assert_eq!(slab.chunks.capacity(), 0);
}

// Otherwise the holder of a node writes its neighbour's cache line, too: 0.4 more lines moved per
// key in the model of many processors.
#[test]
fn a_small_node_lies_in_one_cache_line() {
    const LINE: usize = 64;
    let mut slab = Slab::<u64, ()>::new(0, SideData::default());
    let nodes = fill(&mut slab, 2);
    for node in &nodes {
        let at = node.0.addr().get();
        assert_eq!(at / LINE, (at + size_of::<Node<u64>>() - 1) / LINE);
    }
    remove_all(&mut slab, nodes);
}

#[test]
fn a_chunk_in_flutter_is_kept_and_a_second_empty_one_is_not() {
    let mut slab = Slab::<u64, ()>::new(0, SideData::default());
    let mut first = fill(&mut slab, 1);
    let second = fill(&mut slab, 1);
    let chunk = chunk_of(first[0]);
    assert!(first.iter().all(|node| chunk_of(*node) == chunk));
    assert_ne!(chunk_of(second[0]), chunk);
    assert_eq!(open_chunks(&slab).len(), 0, "both are full");
    remove_all(&mut slab, first.drain(..));
    slab.free_empty(1);
    assert_eq!(open_chunks(&slab), BTreeMap::from([(chunk, 0)]));
    let again = insert(&mut slab, 1);
    assert_eq!(chunk_of(again), chunk);
    remove_all(&mut slab, second.into_iter().chain([again]));
    slab.free_empty(1);
    let open: Vec<_> = open_chunks(&slab).into_values().collect();
    assert_eq!(open, [0], "one chunk, without nodes");
}

#[test]
fn a_slot_is_used_again_before_a_new_one() {
    let mut slab = Slab::new(0, SideData::default());
    let first = insert(&mut slab, "a");
    let second = insert(&mut slab, "b");
    assert_eq!(remove(&mut slab, first), ("a", None::<()>));
    let third = insert(&mut slab, "c");
    assert_eq!(third.0, first.0, "the freed slot comes first");
    assert_eq!(remove(&mut slab, third), ("c", None::<()>));
    assert_eq!(remove(&mut slab, second), ("b", None::<()>));
}

// M4: without times, slots have no room for them.
#[test]
fn a_node_takes_no_more_room_than_itself_and_what_is_beside_it() {
    let strides = SIDE_DATA.map(|data| Slab::<u64, ()>::new(0, data).stride);
    assert_eq!(strides[..4], [32, 32 + 24, 32 + 24, 32 + 48]);
    let carried = size_of::<Carried<()>>() as u32;
    assert_eq!(
        strides[4..],
        [32, 56, 56, 80].map(|without| without + carried)
    );
}
