//! Cases that the fuzzer has found and that were mended, made smaller.

/// Programs that once got less than they might: names, cases, and the least share (percent).
pub(crate) const HELD_BACK: [(&str, &str, f64); 5] = [
    (
        "two streams that run side by side and are waited for one after the other",
        "lasts 4000
     cap 50
     process 1 4 | L3,2,19,38 L2,16,19,33 S3 S2",
        48.0,
    ),
    (
        "a stream that is waited for long after it has run dry",
        "lasts 4000
     cap 50
     process 1 4 | L3,2,20,80 P1200 S3",
        48.0,
    ),
    (
        "the same beside a neighbour",
        "lasts 5000
     cap 50
     neighbour 50
     process 1 4 | L3,2,20,80 P4000 S3",
        37.0,
    ),
    (
        "kernels of one function and grid whose times differ, behind a wait for the context",
        "lasts 5000
     cap 50
     process 1 4 | L3,2,286,2 L3,2,8,4 D",
        48.0,
    ),
    (
        "processes that wait with short launches behind long ones do not keep each other back",
        "lasts 6000
     cap 20
     process 5 6 | L26,1,926,2 P13 L4,2,636,151 D X4 L11,1,926,3 S11 | X3 R18,10 Y10 L16,4,11429,5 L8,8,621,14
     process 4 6 | L22,1,200,7 L8,8,2500,1 L7,16,10690,4 Q7,134 | L0,32,20,2 L3,2,16513,5 L5,16,10690,15 L5,32,20,19 \
     | X2 G6,4,50,13 L3,16,10690,4 L20,1,200,109 D | D L15,16,10690,1 G6,16,10690,8 L10,2,16513,3 S10",
        18.5,
    ),
];

/// Names and cases (`case`).
pub(crate) const FOUND: [(&str, &str); 35] = [
    (
        "long kernels of several contexts do not run at once: a neighbour would have one slice of three",
        "lasts 8000
     cap 20
     neighbour 80
     process 3 4 | L3,2,90169,1 L7,32,92105,1 L11,4,91000,1 S3",
    ),
    (
        "a stream on which one thread launches while another waits for it",
        "lasts 5000
     cap 50
     process 1 4 | L3,8,202,1 | L3,2,286,2 L3,2,8,4 S3",
    ),
    (
        "a kernel behind a wait that ended sooner than predicted",
        "lasts 5000
     cap 50
     process 1 4 | L3,8,202,1 | L3,2,1000,2 L3,2,8,4 D",
    ),
    (
        "two threads on one stream beside a neighbour",
        "lasts 5000
     cap 50
     neighbour 25
     process 1 4 | L3,8,202,1 | L3,2,286,2 L1,2,8,4 D",
    ),
    (
        "a process whose host functions never end pays for its launches beside another process",
        "cap 10
     process 3 4 | H4,2656 L14,2,772,1
     process 1 4 | L17,1,784,1",
    ),
    (
        "a kernel that always follows a short one on an idle stream is measured",
        "cap 20
     process 1 4 | L3,1,26,1 P36 L3,4,877,1 Q3,421",
    ),
    (
        "a kernel whose length changes is charged where nothing measures it",
        "cap 10
     process 1 4 | L3,32,18322,1 L3,32,101,21 Q3,127",
    ),
    (
        "work beside a capture of the same thread is measured",
        "cap 30
     process 1 4 | B2,2 L3,8,1000,8 P100 E2",
    ),
    (
        "a graph has what its thread captured, and what others launch between captures is charged",
        "lasts 2500
     cap 50
     process 1 4 | B15,1 L6,32,2334,6 E15 | L15,16,3116,1",
    ),
    (
        "threads launch on a stream while another thread captures it",
        "lasts 5000
     cap 30
     process 2 11 | D L19,16,282,15 | | B4,1 L2,32,2087,8 E4 | L4,32,282,91",
    ),
    (
        "a kernel that is long now and then is measured, though nothing waits for it",
        SELDOM_LONG_UNSEEN,
    ),
    (
        "a kernel that is long now and then is measured, though the context is waited for",
        SELDOM_LONG_WAITED_FOR,
    ),
    (
        "the rest of a burst is measured before the context is waited for",
        "lasts 6000
     cap 50
     neighbour 50
     process 1 4 | L3,16,14,121 D",
    ),
    (
        "the rest of a burst that is polled, on a thread's default stream too, is measured",
        "lasts 6000
     cap 50
     neighbour 50
     process 1 4 | L3,16,14,121 Q3,50 L1,16,14,121 R1,0 Y0",
    ),
    (
        "the rest of a burst that the program does not wait for costs its neighbour nothing",
        "lasts 6200
     cap 50
     neighbour 50
     process 1 4 | L3,16,14,121 P4000",
    ),
    (
        "a graph that was never measured is charged, though its context is destroyed behind it",
        "lasts 2500
     cap 30
     process 3 56 | G151,32,35,7 C2",
    ),
    (
        "a kernel that was never measured is charged beside a neighbour, though its context is destroyed",
        "lasts 4000
     cap 20
     neighbour 70
     process 5 79 | L271,4,1979,56 L163,8,5,50 L188,4,347,17 C1 L140,4,28,3
     process 4 62 | L85,8,34,39 S150 L68,1,287,25 Q68,312
     process 2 80 | X1 C1 S155 C1 L128,1,1952,1",
    ),
    (
        "bursts of short kernels are seen beside a neighbour",
        "cap 30
     neighbour 60
     process 1 4 | L3,6,52,7 P1035",
    ),
    (
        "kernels that were never measured go one after the other beside a long one",
        FIRST_LAUNCHES,
    ),
    (
        "contexts of one process count one by one beside a neighbour",
        "lasts 6000
     cap 20
     neighbour 70
     process 4 4 | L15,4,2615,1 L7,32,7,17 L3,16,186,11 D",
    ),
    (
        "a kernel that is shorter than a slice is not learnt as a part of it",
        "lasts 6000
     cap 30
     neighbour 70
     process 2 4 | L3,8,13,75 P509 L7,4,9,2 S7
     at 1000 kill 0
     at 1700 start 0",
    ),
    (
        "a neighbour keeps what it earns while many contexts have their slices",
        "lasts 6200
     cap 30
     neighbour 70
     process 3 4 | B10,1 L10,1,952,33 L3,2,952,4 E10 X1 L11,16,952,14 L7,32,106,5 L6,2,192,196 S6
     process 2 7 | S1 L2,16,6,100 G6,8,28,8 G10,1,146,46 L13,16,29,103 L3,1,28,3 L3,32,3650,7
     process 2 9 | L15,1,9,55 L14,4,7,14 L15,8,363,2 G10,1,3747,12 L5,2,3747,4 P739 L14,16,3456,4 Q14,355",
    ),
    (
        "a context that waits for its slice is one of those among which slices go round",
        "lasts 6000
     cap 50
     neighbour 50
     process 3 6 | X2 D L9,8,190,5 L10,8,190,4 D | L2,8,190,97 L6,8,190,2 S6 | L6,2,5,34 L7,1,188,5 D P545 L7,2,5,2 L0,16,484,11 S0 \
     | L15,16,484,2 L6,1,188,11 L14,32,151,3 S14 | P108 L3,4,11,1 L13,16,484,28 Q13,47",
    ),
    (
        "short kernels whose context is waited for are seen beside a neighbour",
        "cap 50
     neighbour 50
     process 1 4 | D L0,2,9,19",
    ),
    (
        "more launches than a stream has timing events are measured",
        "lasts 5000
     cap 50
     process 1 10 | L5,8,201,6 L0,8,6,14",
    ),
    (
        "more launches than a stream has timing events are measured where the stream is waited for",
        "lasts 5000
     cap 50
     process 1 4 | L2,16,9,2 L3,4,9,28 L3,4,247,86 S3",
    ),
    (
        "two contexts whose kernels are shorter than a slice are charged what they got beside a neighbour",
        "lasts 4000
     cap 30
     neighbour 70
     process 5 4 | L7,1,951,1 L15,1,951,1",
    ),
    (
        "flags come while a host function runs in another stream",
        "lasts 1500
     cap 50
     process 5 4 | V19,59 L19,16,15,1 U59 H2,9299 | L15,32,38,1 L19,1,15512,1",
    ),
    (
        "work in a context that is destroyed right after its launch is charged",
        "lasts 2000
     cap 10
     process 2 4 | C1 G7,32,1001,25",
    ),
    (
        "graphs that were never measured do not pile up while another stream waits for the host",
        "lasts 3000
     cap 30
     neighbour 70
     process 1 7 | L3,2,8,6 B4,1 L4,32,30701,1 E4 H3,1 L3,4,10,15",
    ),
    (
        "what the arbiter charges for a process that is stopped, and gives back, leaves nothing over",
        "lasts 8000
     cap 20
     neighbour 70
     process 1 4 | S3 L3,1,315,3 S3
     at 1809 stop 0
     at 2317 resume 0
     at 3400 stop 0
     at 3910 resume 0
     at 5000 stop 0
     at 5510 resume 0
     at 6600 stop 0
     at 7110 resume 0",
    ),
    (
        "kernels of one function and grid that take now 25 us, now 21 ms, leave a neighbour its share",
        "cap 10
     neighbour 70
     process 1 4 | L1,4,25,16 L3,4,21000,6 Q3,318",
    ),
    (
        "graphs that were never measured, of several processes: what takes longer than a guess waits for no other",
        "lasts 1500
     cap 10
     process 1 58 | L38,4,41,14 L0,2,198,24 | L16,32,1828,49
     process 1 83 | L50,1,7,9 | L49,4,326,1 S49 | L45,2,718,1 | P157 L71,4,326,3
     process 1 84 | G35,1,1498,50 | G76,1,1498,45 G61,4,213,9 L32,2,221,3 P154 L7,32,19,27",
    ),
    (
        "a launch that was called before the first of its kind was measured waits for no other",
        "lasts 2500
     cap 10
     process 1 4 | L0,16,39703,1
     process 1 4 | L3,8,32832,1",
    ),
    (
        "an event behind no launch of its own waits for no other",
        "lasts 1500
     cap 20
     process 1 4 | L3,16,24352,1
     process 1 4 | L3,8,84827,1 | L3,16,69010,1",
    ),
];

/// Twenty-four kernels of 10 us with pauses, then one of 20 ms of the same function and grid.
const SELDOM_LONG_UNSEEN: &str = "cap 10
     process 1 4 | L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 \
     L3,32,10,1 P60 L3,32,10,1 P60 L3,32,10,1 P60 L3,32,20000,1 P21000";

/// So, each waited for.
const SELDOM_LONG_WAITED_FOR: &str = "cap 10
     process 1 4 | L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 \
     S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 \
     L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 S3 L3,32,10,1 \
     S3 L3,32,10,1 S3 L3,32,20000,1 D";

/// Ten threads with kernels of up to 48 ms.
const FIRST_LAUNCHES: &str = "lasts 3000
     cap 20
     process 1 4 | L3,4,1354,39 D L3,32,652,136 L3,1,28,1 L3,16,47660,3 L3,2,39933,4 L3,8,7798,3 S3 | P96 S3 \
     L3,16,47660,3 L3,4,1354,147 L3,2,39933,1 S3 | S1 L3,8,7798,4 L3,8,7798,6 G3,16,47660,1 L3,2,39933,1 D | P27 \
     G1,16,47660,2 P29 L3,16,47660,2 L3,2,39933,3 L2,8,7798,3 S2 | S3 D L1,4,1354,4 L3,4,1354,78 L3,8,7798,6 \
     G3,8,7798,12 L3,32,652,6 S3 | L3,4,1354,8 G1,8,7798,4 D L3,4,1354,1 L1,8,7798,8 S1 | G3,4,1354,47 G3,2,39933,1 \
     D L2,2,39933,2 L3,16,47660,4 S3 | L3,16,47660,1 S3 L3,32,652,27 L3,4,1354,8 L3,2,39933,2 D | L3,4,1354,20 \
     L3,1,28,1 L1,2,39933,1 L3,4,1354,44 L1,32,652,1 S1 | L3,32,652,33 L3,4,1354,24";
