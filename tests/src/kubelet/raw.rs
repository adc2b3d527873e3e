//! gRPC by hand, with an `:authority` that no proper client sends, as grpc-go does for a unix socket's path.

use std::path::Path;
use std::time::Duration;

use prost::Message;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;

/// Result of a call, on a connection of its own.
pub(super) async fn call<Q: Message, A: Message + Default>(
    socket: &Path,
    authority: &str,
    method: &str,
    request: &Q,
    within: Duration,
) -> Result<A, String> {
    let work = exchange(socket, authority, method, request.encode_to_vec());
    let answer = tokio::time::timeout(within, work)
        .await
        .map_err(|_| format!("{method}: nothing within {within:?}"))??;
    A::decode(answer.as_slice()).map_err(|error| format!("{method}: {error}"))
}

async fn exchange(socket: &Path, authority: &str, method: &str, message: Vec<u8>) -> Result<Vec<u8>, String> {
    let io = |error: std::io::Error| format!("{method}: {error}");
    let mut stream = UnixStream::connect(socket).await.map_err(io)?;
    let mut bytes = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    bytes.extend(frame(4, 0, 0, &[]));
    let headers = [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", method),
        (":authority", authority),
        ("content-type", "application/grpc"),
        ("te", "trailers"),
    ];
    let mut block = Vec::new();
    for (name, value) in headers {
        // A literal that is not indexed, its lengths below 127.
        block.push(0);
        for text in [name, value] {
            let length = u8::try_from(text.len()).ok().filter(|length| *length < 127);
            block.push(length.ok_or("too long for this client")?);
            block.extend(text.bytes());
        }
    }
    bytes.extend(frame(1, 4, 1, &block));
    let length = u32::try_from(message.len()).map_err(|error| error.to_string())?;
    let body = [&[0], &length.to_be_bytes()[..], &message].concat();
    bytes.extend(frame(0, 1, 1, &body));
    stream.write_all(&bytes).await.map_err(io)?;
    let mut answer = Vec::new();
    loop {
        let mut header = [0; 9];
        stream.read_exact(&mut header).await.map_err(io)?;
        let [high, middle, low, kind, flags, ..] = header;
        let mut payload = vec![0; usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low)];
        stream.read_exact(&mut payload).await.map_err(io)?;
        match kind {
            0 => answer.extend(&payload),
            3 => {
                return Err(format!("{method}: stream terminated by RST_STREAM with error code {payload:?}"));
            }
            7 => return Err(format!("{method}: the connection was ended")),
            _ => {}
        }
        // The end of the stream, in data or trailers.
        if (kind == 0 || kind == 1) && flags & 1 == 1 {
            break;
        }
    }
    // A compression mark and a length come first; without a message there was an error in the trailers.
    answer.get(5..).map(<[u8]>::to_vec).ok_or_else(|| format!("{method}: no message"))
}

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let [_, high, middle, low] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, stream];
    frame.extend(payload);
    frame
}
