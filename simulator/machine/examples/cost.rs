//! Cost of the machine's calls: `cargo run --release -p vcuda-machine --example cost [DIR]`.
//!
//! With a directory the machine is a mapped file there, otherwise memory. Prints nanoseconds per call.

#![expect(clippy::print_stdout, reason = "the figures are this program's output")]

use std::path::PathBuf;
use vcuda_machine::{Client, Command, Config, Machine, MachineError, QueueFull, StreamId};

const ROUNDS: u64 = 200_000;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = open()?;
    let client = machine.attach(std::process::id(), "cost")?;
    let context = client.context_create(0)?;
    let stream = client.stream_create(context, 0)?;

    let time = |name: &str, rounds: u64, call: &mut dyn FnMut()| {
        let start = machine.now_ns();
        (0..rounds).for_each(|_| call());
        print(name, (machine.now_ns() - start) / rounds);
    };

    time("clock", ROUNDS, &mut || {
        std::hint::black_box(machine.now_ns());
    });
    print("submit", submit_ns(&machine, &client, stream)?);
    let completion_ns = completion_ns(&machine, &client, stream)?;
    print("advance, per completion in batches of 500", completion_ns);
    time("submit + advance + is_done, one kernel", ROUNDS, &mut || {
        if let Ok(ticket) = client.submit(stream, kernel(0)) {
            while !client.is_done(ticket) {}
        }
    });
    time("take + give", ROUNDS, &mut || {
        if client.take(0, 4096).is_ok() {
            client.give(0, 4096);
        }
    });
    let endless = client.submit(stream, kernel(u64::MAX))?;
    time("is_done of a running kernel", ROUNDS, &mut || {
        std::hint::black_box(client.is_done(endless));
    });
    time("memory (asks who lives)", ROUNDS / 10, &mut || {
        std::hint::black_box(machine.memory(0));
    });
    Ok(())
}

fn print(name: &str, ns: u64) {
    println!("{name:<44} {ns:>8} ns");
}

fn kernel(duration_ns: u64) -> Command {
    Command::Kernel { duration_ns, sms: 0 }
}

/// Cost of a submission (ns), in batches that fit the queue. Draining it is not measured.
fn submit_ns(machine: &Machine, client: &Client, stream: StreamId) -> Result<u64, QueueFull> {
    let mut spent = 0;
    for _ in 0..ROUNDS / 1000 {
        let start = machine.now_ns();
        for _ in 0..1000 {
            client.submit(stream, kernel(10))?;
        }
        spent += machine.now_ns() - start;
        client.wait_stream(stream);
    }
    Ok(spent / ROUNDS)
}

/// Cost of a completion (ns) if 500 are found at once.
fn completion_ns(machine: &Machine, client: &Client, stream: StreamId) -> Result<u64, QueueFull> {
    let mut spent = 0;
    for _ in 0..200 {
        for _ in 0..500 {
            client.submit(stream, kernel(1))?;
        }
        let start = machine.now_ns();
        client.advance();
        spent += machine.now_ns() - start;
    }
    Ok(spent / (200 * 500))
}

fn open() -> Result<Machine, MachineError> {
    match std::env::args_os().nth(1) {
        Some(dir) => Machine::open_or_create(&PathBuf::from(dir)),
        None => Machine::in_memory(Config::default()),
    }
}
