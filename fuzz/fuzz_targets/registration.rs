//! A message on a tenant's `manager.sock`: it is refused, or means what it says.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vcuda_region::registration::{
    ANSWER_BYTES, Answer, Hello, MOST_BYTES, OLDEST, Question, REPLY_BYTES, Reply, VERSION,
};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(hello) = Hello::decode(bytes) {
        assert!(bytes.len() <= MOST_BYTES);
        assert!(hello.pid > 0 && hello.versions.0 <= hello.versions.1);
        assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
        if let Some(gpu) = Question::gpu_in(bytes) {
            let question = Question { hello, gpu }.encode();
            assert_eq!((Hello::decode(&question), Question::gpu_in(&question)), (Ok(hello), Some(gpu)));
        }
        if let Some(version) = hello.choose(OLDEST, VERSION) {
            assert!((OLDEST..=VERSION).contains(&version));
        }
    }
    if let Ok(answer) = Answer::decode(bytes) {
        assert_eq!(bytes.len(), ANSWER_BYTES);
        assert_eq!(answer.encode(), bytes);
    }
    if let Ok(reply) = Reply::decode(bytes) {
        assert_eq!(bytes.len(), REPLY_BYTES);
        assert_eq!(reply.encode(), bytes);
    }
});
