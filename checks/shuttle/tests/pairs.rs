//! Features two by two, and more: each run draws which features the queue has, what is done with it, and how it
//! ends (`src/plan.rs`). And the few that meet too rarely that way.
#![cfg(keyqueue_shuttle)]

use std::mem;
use std::sync::Arc;

use keyqueue_shuttle_tests::{
    AGE, Bag, Crew, End, How, Kind, Place, Plan, below, check_often, dawdle, delay, note, once_in,
};

/// Checks what `src/place` does: C2 to C6, C9, C10, C12, D1, S1, S3, S5, S7, S8, P4, G2, G5, G6, T1, T2, B2, B4, V1 to V3,
/// M2; and that no thread waits forever.
fn run<K: Kind>(plan: Plan) {
    note(&plan);
    let place = Arc::new(Place::<K>::new(plan));
    let spawn = |crew: &mut Crew, name: &str, run: fn(&Place<K>)| {
        let here = Arc::clone(&place);
        crew.thread(name, move || run(&here));
    };
    let mut clock = Crew::default();
    if plan.has_time() {
        spawn(&mut clock, "clock", Place::run_clock);
    }
    if plan.held {
        place.hold_first(true);
    }
    let mut producers = Crew::default();
    for producer in 0..plan.producers {
        let here = Arc::clone(&place);
        producers.thread("producer", move || here.produce(producer));
    }
    if plan.holds {
        spawn(&mut producers, "holder", Place::hold_groups);
    }
    if plan.clears {
        spawn(&mut producers, "clearer", Place::clear);
    }
    if plan.sweeps {
        spawn(&mut producers, "sweeper", Place::sweep);
    }
    let mut getters = Crew::default();
    let first = below(4);
    for getter in 0..plan.getters {
        let here = Arc::clone(&place);
        getters.thread("getter", move || here.consume(first + getter));
    }
    match plan.amid {
        true => dawdle(40),
        false => mem::take(&mut producers).join(),
    }
    if plan.held {
        place.hold_first(false);
    }
    let dropped = place.end();
    producers.join();
    getters.join();
    place.stop_clock();
    clock.join();
    place.check_rest(dropped);
}

#[test]
fn features_of_keys_meet() {
    check_often("pairs", 4, || run::<()>(Plan::draw()));
}

#[test]
fn features_of_values_meet() {
    check_often("pairs of values", 4, || {
        run::<Bag>(Plan::draw());
    });
}

/// B2, M2: a key is raised and delivered before the thread that has queued it goes on.
#[test]
fn bounds_and_levels_meet() {
    check_often("bounded levels", 5, || {
        let hows = [How::Wait, How::Async, How::Try, How::WaitFor];
        run::<()>(Plan {
            levels: 2,
            capacity: Some(1),
            timed: once_in(4),
            menu: [
                (How::At(1), 0),
                (How::At(0), 0),
                (hows[below(4) as usize], 1),
            ],
            ..Plan::plain()
        });
    });
}

/// B2: a delay that is kept, cancelled, superseded, or ends while its key is queued gives its room to an add that
/// waits. No other delivery does: the delays are long, or the key's group is held.
#[test]
fn bounds_and_delays_meet() {
    check_often("bounded delays", 5, || {
        let held = once_in(2);
        let long = if held { delay() } else { AGE };
        let waits = [How::Wait, How::Async][below(2) as usize];
        let other = [How::After(long), How::HandleAfter(long), How::At(0)][below(3) as usize];
        run::<()>(Plan {
            capacity: Some(2),
            groups: held,
            held,
            supersede: once_in(2),
            cancels: once_in(2),
            menu: [(How::After(long), 0), (other, 0), (waits, 1)],
            end: [End::Drain, End::Now][below(2) as usize],
            ..Plan::plain()
        });
    });
}
