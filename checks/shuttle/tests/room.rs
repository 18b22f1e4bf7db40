//! The room of bounded queues: at rest it is exactly what the capacity and what waits leave.
#![cfg(keyqueue_shuttle)]

use std::array;
use std::sync::Arc;

use keyqueue_shuttle_tests::{
    Bag, Crew, End, How, Kind, Place, Plan, below, check_often, note, once_in,
};

/// A plan of a bounded queue in which nothing waits for a time but delays, so that all keys can be taken at rest.
fn draw() -> Plan {
    // Only adds that keep the bound: then it is not exceeded.
    let all_keep_it = once_in(2);
    let drawn = Plan::draw();
    let hows = [How::Try, How::WaitFor, How::Dropped(2)];
    Plan {
        capacity: Some(1 + below(2) as usize),
        rate: None,
        group_rate: None,
        interval: None,
        holds: false,
        manual: true,
        // Nobody gets what add would wait for.
        menu: array::from_fn(|nth| match drawn.menu[nth] {
            (How::Wait | How::Async, key) => (How::Try, key),
            (_, key) if all_keep_it => (hows[below(3) as usize], key),
            other => other,
        }),
        adds: 1 + below(2),
        delays: drawn.delays && !all_keep_it,
        retries: drawn.retries && !all_keep_it,
        end: End::ShutDown,
        ..drawn
    }
}

/// B1 to B3, B5: what is added without regard to the bound, or comes back, or is delayed, takes room as long as it waits, and
/// what is retried no more of it than its part; and no
/// add that keeps the bound exceeds it, or is refused while there is room.
fn run<K: Kind>(plan: Plan) {
    note(&plan);
    let place = Arc::new(Place::<K>::new(plan));
    place.delay_first();
    let mut crew = Crew::default();
    for producer in 0..plan.producers {
        let here = Arc::clone(&place);
        crew.thread("producer", move || here.produce(producer));
    }
    let here = Arc::clone(&place);
    let most = below(4);
    crew.thread("taker", move || here.take(most));
    let here = Arc::clone(&place);
    crew.thread("clock", move || (0..3).for_each(|_| here.pass_time()));
    if plan.clears {
        let here = Arc::clone(&place);
        crew.thread("clearer", move || here.clear());
    }
    crew.join();
    place.check_room();
    let dropped = place.end();
    place.check_rest(dropped);
}

#[test]
fn all_room_of_keys_is_there_again() {
    check_often("room", 5, || run::<()>(draw()));
}

#[test]
fn all_room_of_values_is_there_again() {
    check_often("room of values", 5, || run::<Bag>(draw()));
}
