//! Properties that hold after any sequence of calls.

use super::*;
use crate::{ContextId, GpuConfig, ObjectId};
use proptest::prelude::*;

const CLIENTS: usize = 3;
const STREAMS: usize = 2;
const GPUS: usize = 2;

#[derive(Debug, Clone)]
enum Op {
    Submit(usize, Work),
    /// Waits for an earlier command of the same process.
    Wait(usize, prop::sample::Index),
    OpenGate(prop::sample::Index),
    Step(u64),
    Take(usize, u64),
    Give(usize, u64),
    /// Makes an object, new or from taken bytes.
    Make(usize, u64, bool),
    Hold(usize, prop::sample::Index),
    Release(usize, prop::sample::Index),
    Unmake(usize, prop::sample::Index),
    Look,
    NewStream(usize),
    Leave(usize),
}

#[derive(Debug, Clone, Copy)]
enum Work {
    Kernel(u64, u32),
    Copy(u64),
    Marker,
    Gate,
}

impl From<Work> for Command {
    fn from(work: Work) -> Self {
        match work {
            Work::Kernel(duration_ns, sms) => Command::Kernel { duration_ns, sms },
            Work::Copy(duration_ns) => copy(duration_ns),
            Work::Marker => Command::Marker,
            Work::Gate => Command::Gate,
        }
    }
}

fn work() -> impl Strategy<Value = Work> {
    prop_oneof![
        5 => (0..3 * MS, 0..120u32).prop_map(|(ns, sms)| Work::Kernel(ns, sms)),
        1 => Just(Work::Kernel(u64::MAX, 30)),
        2 => (0..MS).prop_map(Work::Copy),
        1 => Just(Work::Marker),
        1 => Just(Work::Gate),
    ]
}

fn timely() -> impl Strategy<Value = Op> {
    prop_oneof![
        6 => (0..CLIENTS * STREAMS, work()).prop_map(|(stream, work)| Op::Submit(stream, work)),
        1 => (0..CLIENTS * STREAMS, any::<prop::sample::Index>()).prop_map(|(on, of)| Op::Wait(on, of)),
        1 => any::<prop::sample::Index>().prop_map(Op::OpenGate),
        4 => (0..4 * MS).prop_map(Op::Step),
    ]
}

fn any_op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => timely(),
        2 => (0..CLIENTS, 0..1100u64 << 20).prop_map(|(client, bytes)| Op::Take(client, bytes)),
        2 => (0..CLIENTS, 0..1100u64 << 20).prop_map(|(client, bytes)| Op::Give(client, bytes)),
        2 => (0..CLIENTS, 0..300u64 << 20, any::<bool>()).prop_map(|(client, bytes, new)| Op::Make(client, bytes, new)),
        2 => (0..CLIENTS, any::<prop::sample::Index>()).prop_map(|(client, which)| Op::Hold(client, which)),
        2 => (0..CLIENTS, any::<prop::sample::Index>()).prop_map(|(client, which)| Op::Release(client, which)),
        1 => (0..CLIENTS, any::<prop::sample::Index>()).prop_map(|(client, which)| Op::Unmake(client, which)),
        2 => Just(Op::Look),
        1 => (0..CLIENTS * STREAMS).prop_map(Op::NewStream),
        1 => (0..CLIENTS).prop_map(Op::Leave),
    ]
}

struct Player {
    client: Client,
    gpu: usize,
    context: ContextId,
    streams: Vec<StreamId>,
    tickets: Vec<Ticket>,
}

impl Player {
    fn new(machine: &Machine, number: usize) -> Player {
        let client = machine.attach(u32::try_from(number).unwrap() + 1, "player").unwrap();
        let gpu = number % GPUS;
        let context = client.context_create(gpu).unwrap();
        let streams =
            (0..STREAMS).map(|n| client.stream_create(context, -i32::try_from(n).unwrap()).unwrap());
        let streams = streams.collect();
        Player { client, gpu, context, streams, tickets: Vec::new() }
    }
}

struct Game {
    machine: Machine,
    players: Vec<Player>,
    gates: Vec<(usize, Ticket)>,
    objects: Vec<ObjectId>,
}

impl Game {
    fn new() -> Game {
        let mut config = config();
        config.gpus = vec![GpuConfig { sms: 100, ..config.gpus[0].clone() }; GPUS];
        let machine = Machine::in_memory(config).unwrap();
        let players = (0..CLIENTS).map(|number| Player::new(&machine, number)).collect();
        Game { machine, players, gates: Vec::new(), objects: Vec::new() }
    }

    /// Calls `does` for a process with an existing or removed object.
    fn with_object(&self, player: usize, which: prop::sample::Index, does: impl FnOnce(&Client, ObjectId)) {
        if !self.objects.is_empty() {
            does(&self.players[player].client, *which.get(&self.objects));
        }
    }

    fn submit(&mut self, stream: usize, command: Command) {
        let player = &mut self.players[stream / STREAMS];
        if let Ok(ticket) = player.client.submit(player.streams[stream % STREAMS], command) {
            player.tickets.push(ticket);
            if command == Command::Gate {
                self.gates.push((stream / STREAMS, ticket));
            }
        }
    }

    fn play(&mut self, op: &Op) {
        // No two calls happen at one instant, as their order could depend on which process plays.
        self.machine.step_clock(1);
        match op {
            Op::Submit(stream, work) => self.submit(*stream, Command::from(*work)),
            Op::Wait(on, of) => {
                let tickets = &self.players[on / STREAMS].tickets;
                if !tickets.is_empty() {
                    let ticket = *of.get(tickets);
                    self.submit(*on, Command::Wait { ticket });
                }
            }
            Op::OpenGate(which) if !self.gates.is_empty() => {
                let (player, ticket) = *which.get(&self.gates);
                self.players[player].client.open_gate(ticket);
            }
            Op::OpenGate(_) => {}
            Op::Step(ns) => self.machine.step_clock(*ns),
            Op::Take(player, bytes) => {
                let player = &self.players[*player];
                let free = (1000 << 20) - self.machine.memory(player.gpu).used_bytes;
                assert_eq!(player.client.take(player.gpu, *bytes).is_ok(), *bytes <= free);
            }
            Op::Give(player, bytes) => self.players[*player].client.give(self.players[*player].gpu, *bytes),
            Op::Make(player, bytes, is_new) => {
                let Player { client, gpu, .. } = &self.players[*player];
                let made = if *is_new {
                    client.object_create(*gpu, *bytes, 0)
                } else {
                    client.object_make(*gpu, *bytes, 0)
                };
                self.objects.extend(made);
            }
            Op::Hold(player, which) => self.with_object(*player, *which, |client, object| {
                let _ = client.object_hold(object, None);
            }),
            Op::Release(player, which) => self.with_object(*player, *which, Client::object_release),
            Op::Unmake(player, which) => self.with_object(*player, *which, |client, object| {
                client.object_unmake(object);
            }),
            Op::Look => self.players[0].client.advance(),
            Op::NewStream(which) => {
                let player = &mut self.players[which / STREAMS];
                player.client.stream_destroy(player.streams[which % STREAMS]);
                player.streams[which % STREAMS] = player.client.stream_create(player.context, 0).unwrap();
            }
            Op::Leave(number) => {
                // The new context comes before the old one is destroyed.
                if self.machine.memory(number % GPUS).used_bytes <= 900 << 20 {
                    self.players[*number] = Player::new(&self.machine, *number);
                }
            }
        }
    }

    fn check(&self, before: &crate::Report) -> crate::Report {
        let report = self.machine.report();
        let local = &mut *self.machine.shared().local.lock();
        self.machine.shared().refresh(local).unwrap();
        assert!(local.base.check());
        for (gpu, old) in report.gpus.iter().zip(&before.gpus) {
            let of_gpu = report.processes.iter().filter(|process| process.gpu_uuid == gpu.uuid);
            let (used, service) = of_gpu.fold((0, 0), |(used, service), process| {
                assert!(process.memory_used_bytes <= process.memory_peak_bytes);
                assert!(process.alive || process.memory_used_bytes == 0);
                assert!(process.first_ns <= process.last_ns && process.last_ns <= self.machine.now_ns());
                assert!(process.service_ns <= process.last_ns - process.first_ns);
                (used + process.memory_used_bytes, service + process.service_ns)
            });
            assert_eq!(used, gpu.memory_used_bytes);
            assert_eq!(service, gpu.busy_ns, "one context at a time: what runs is a process's");
            assert!(gpu.memory_used_bytes <= gpu.memory_total_bytes && gpu.memory_peak_bytes >= used);
            assert!(gpu.busy_ns >= old.busy_ns && gpu.busy_ns <= self.machine.now_ns());
        }
        report
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn books_always_balance(ops in prop::collection::vec(any_op(), 1..120)) {
        let mut game = Game::new();
        let mut report = game.machine.report();
        for op in &ops {
            game.play(op);
            report = game.check(&report);
        }
    }

    /// The machine is lazy: the time at which a process plays it must make no difference.
    #[test]
    fn looking_changes_nothing(ops in prop::collection::vec(timely(), 1..80)) {
        let (mut lazy, mut eager) = (Game::new(), Game::new());
        for op in &ops {
            lazy.play(op);
            match op {
                Op::Step(ns) => {
                    eager.machine.step_clock(1);
                    for part in [ns / 3, ns / 7, ns - ns / 3 - ns / 7] {
                        eager.machine.step_clock(part);
                        eager.players[1].client.advance();
                    }
                }
                other => eager.play(other),
            }
            eager.players[2].client.advance();
        }
        for (lazy, eager) in lazy.players.iter().zip(&eager.players) {
            for (one, other) in lazy.tickets.iter().zip(&eager.tickets) {
                prop_assert_eq!(lazy.client.done_ns(*one), eager.client.done_ns(*other));
            }
        }
        prop_assert_eq!(lazy.machine.report(), eager.machine.report());
    }
}
