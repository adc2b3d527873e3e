//! A connection from kubelet in which the `:authority` header of every request becomes `localhost`.
//!
//! On the sockets that it watches, kubelet sends the socket's path as authority, plain or with `%2F`
//! (pkg/kubelet/pluginmanager/operationexecutor dials by path and names no authority). RFC 3986 has no such authority, and
//! HTTP/2 servers refuse it with PROTOCOL_ERROR (hyperium/h2 pull request 487, grpc-rust issue 1876): the plugin could not be
//! registered. Header blocks are decoded and written again without compression, so that the server needs no dynamic table. All
//! other frames pass unchanged.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use loona_hpack::Decoder;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tonic::transport::server::Connected;

/// Length of the client's connection preface (RFC 9113, 3.4).
const PREFACE_BYTES: usize = 24;
/// Length of the header before each frame's payload (RFC 9113, 4.1).
const FRAME_HEADER_BYTES: usize = 9;
/// Largest payload of a frame: the default of SETTINGS_MAX_FRAME_SIZE (bytes).
const PAYLOAD_MAX: usize = 16 << 10;
/// Largest header block (bytes).
const HEADERS_MAX: usize = 64 << 10;
/// Default of SETTINGS_HEADER_TABLE_SIZE (bytes).
const TABLE_BYTES: usize = 4096;

const HEADERS: u8 = 1;
const CONTINUATION: u8 = 9;
const END_STREAM: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// A connection from kubelet with rewritten headers.
pub(super) struct KubeletStream {
    stream: UnixStream,
    rewriter: Rewriter,
}

impl KubeletStream {
    pub(super) fn new(stream: UnixStream) -> Self {
        Self { stream, rewriter: Rewriter::new() }
    }
}

impl Connected for KubeletStream {
    type ConnectInfo = ();

    fn connect_info(&self) -> Self::ConnectInfo {}
}

/// A header block that more frames continue.
struct HeaderBlock {
    flags: u8,
    stream: [u8; 4],
    block: Vec<u8>,
}

struct Rewriter {
    decoder: Decoder<'static>,
    preface_left: usize,
    /// Bytes received that are no whole frame yet.
    received: Vec<u8>,
    /// Bytes for the server, which has read them up to `read`.
    ready: Vec<u8>,
    read: usize,
    pending: Option<HeaderBlock>,
}

impl Rewriter {
    fn new() -> Self {
        let mut decoder = Decoder::new();
        decoder.set_max_allowed_table_size(TABLE_BYTES);
        Self {
            decoder,
            preface_left: PREFACE_BYTES,
            received: Vec::new(),
            ready: Vec::new(),
            read: 0,
            pending: None,
        }
    }

    /// Appends bytes from kubelet, and makes every whole frame ready for the server.
    fn receive(&mut self, bytes: &[u8]) -> io::Result<()> {
        let (preface, rest) = bytes.split_at(bytes.len().min(self.preface_left));
        self.preface_left -= preface.len();
        self.ready.extend_from_slice(preface);
        self.received.extend_from_slice(rest);
        while let Some(frame) = self.whole_frame()? {
            self.forward(&frame)?;
        }
        Ok(())
    }

    fn whole_frame(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some([high, middle, low]) = self.received.first_chunk::<3>() else {
            return Ok(None);
        };
        let payload = usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low);
        if payload > PAYLOAD_MAX {
            return Err(invalid("a frame that is too large"));
        }
        let length = FRAME_HEADER_BYTES + payload;
        if self.received.len() < length {
            return Ok(None);
        }
        let rest = self.received.split_off(length);
        Ok(Some(std::mem::replace(&mut self.received, rest)))
    }

    fn forward(&mut self, frame: &[u8]) -> io::Result<()> {
        let (Some([_, _, _, kind, flags, stream @ ..]), Some(payload)) =
            (frame.first_chunk::<FRAME_HEADER_BYTES>(), frame.get(FRAME_HEADER_BYTES..))
        else {
            return Err(invalid("half a frame"));
        };
        let mut pending = match (*kind, self.pending.take()) {
            (HEADERS, None) => {
                HeaderBlock { flags: *flags, stream: *stream, block: fragment(*flags, payload)?.to_vec() }
            }
            (CONTINUATION, Some(mut pending)) if pending.stream == *stream => {
                pending.block.extend_from_slice(payload);
                pending.flags |= flags & END_HEADERS;
                pending
            }
            (_, None) if *kind != CONTINUATION => {
                self.ready.extend_from_slice(frame);
                return Ok(());
            }
            _ => return Err(invalid("a header block that another frame interrupts")),
        };
        if pending.block.len() > HEADERS_MAX {
            return Err(invalid("too many headers"));
        }
        if pending.flags & END_HEADERS == 0 {
            self.pending = Some(pending);
            return Ok(());
        }
        let block = self.with_plain_authority(&std::mem::take(&mut pending.block))?;
        let [.., high, middle, low] = u32::try_from(block.len()).unwrap_or(u32::MAX).to_be_bytes();
        let flags = pending.flags & END_STREAM | END_HEADERS;
        self.ready.extend_from_slice(&[high, middle, low, HEADERS, flags]);
        self.ready.extend_from_slice(&pending.stream);
        self.ready.extend_from_slice(&block);
        Ok(())
    }

    /// The header block with `:authority: localhost`, each header as a literal without indexing (RFC 7541, 6.2.2).
    fn with_plain_authority(&mut self, block: &[u8]) -> io::Result<Vec<u8>> {
        let headers = self.decoder.decode(block);
        let headers = headers.map_err(|error| invalid(&format!("a header block: {error:?}")))?;
        let mut written = Vec::new();
        for (name, value) in &headers {
            let value: &[u8] = if name == b":authority" { b"localhost" } else { value };
            written.push(0);
            for text in [name.as_slice(), value] {
                // Seven bits of length, not Huffman-coded.
                written.extend(loona_hpack::encoder::encode_integer(text.len(), 7));
                written.extend_from_slice(text);
            }
        }
        if written.len() > PAYLOAD_MAX {
            return Err(invalid("too many headers"));
        }
        Ok(written)
    }
}

/// The header block fragment of a HEADERS frame, without padding and priority (RFC 9113, 6.2).
fn fragment(flags: u8, payload: &[u8]) -> io::Result<&[u8]> {
    let mut block = payload;
    let mut padding = 0;
    if flags & PADDED != 0 {
        let (length, rest) = block.split_first().ok_or_else(|| invalid("no padding"))?;
        (padding, block) = (usize::from(*length), rest);
    }
    if flags & PRIORITY != 0 {
        block = block.get(5..).ok_or_else(|| invalid("no priority"))?;
    }
    let length = block.len().checked_sub(padding).ok_or_else(|| invalid("too much padding"))?;
    Ok(block.get(..length).unwrap_or_default())
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("kubelet sent {what}"))
}

impl AsyncRead for KubeletStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let connection = self.get_mut();
        let rewriter = &mut connection.rewriter;
        while rewriter.read == rewriter.ready.len() {
            rewriter.ready.clear();
            rewriter.read = 0;
            let mut bytes = [0; 8 << 10];
            let mut received = ReadBuf::new(&mut bytes);
            match Pin::new(&mut connection.stream).poll_read(cx, &mut received) {
                Poll::Ready(Ok(())) if received.filled().is_empty() => return Poll::Ready(Ok(())),
                Poll::Ready(Ok(())) => rewriter.receive(received.filled())?,
                unfinished => return unfinished,
            }
        }
        let waiting = rewriter.ready.get(rewriter.read..).unwrap_or_default();
        let now = waiting.len().min(buffer.remaining());
        buffer.put_slice(waiting.get(..now).unwrap_or_default());
        rewriter.read += now;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for KubeletStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let [_, high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let mut frame = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        frame.extend_from_slice(payload);
        frame
    }

    /// Bytes that the server reads after the preface, if the frames arrive in pieces of this size.
    fn read(frames: &[Vec<u8>], piece: usize) -> io::Result<Vec<u8>> {
        let mut rewriter = Rewriter::new();
        let mut bytes = vec![b'P'; PREFACE_BYTES];
        bytes.extend(frames.concat());
        for piece in bytes.chunks(piece) {
            rewriter.receive(piece)?;
        }
        Ok(rewriter.ready.split_off(PREFACE_BYTES))
    }

    fn headers_of(frame: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let headers = Decoder::new().decode(&frame[FRAME_HEADER_BYTES..]).unwrap();
        headers.into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn an_authority_that_is_a_path_becomes_localhost_and_the_rest_stays() {
        for path in ["/var/lib/kubelet/plugins_registry/x.sock", "%2Fvar%2Flib%2Fx.sock", "localhost"] {
            let mut encoder = loona_hpack::Encoder::new();
            // The second request refers to the table that the first has filled.
            let requests = [(); 2].map(|()| {
                let headers: [(&[u8], &[u8]); 3] =
                    [(b":method", b"POST"), (b":authority", path.as_bytes()), (b"te", b"trailers")];
                frame(HEADERS, END_HEADERS, &encoder.encode(headers))
            });
            for request in &requests {
                let both = read(&requests, 7).unwrap();
                let first = &both[..both.len() / 2];
                assert_eq!(first, &both[both.len() / 2..]);
                let headers = headers_of(first);
                assert_eq!(headers[1], (":authority".to_owned(), "localhost".to_owned()));
                assert_eq!((headers.len(), headers[2].1.as_str()), (3, "trailers"));
                assert!(!request.is_empty());
            }
        }
    }

    #[test]
    fn padding_priority_and_continuations_are_understood() {
        let block = loona_hpack::Encoder::new().encode([(&b":authority"[..], &b"/x"[..]), (b"a", b"b")]);
        let (front, back) = block.split_at(2);
        let padded = [&[3, 0, 0, 0, 0, 0][..], front, &[0, 0, 0]].concat();
        let frames = [
            frame(HEADERS, PADDED | PRIORITY | END_STREAM, &padded),
            frame(CONTINUATION, END_HEADERS, back),
            frame(0, END_STREAM, b"data"),
        ];
        let read = read(&frames, 1).unwrap();
        assert!(read.ends_with(&frames[2]));
        let headers = &read[..read.len() - frames[2].len()];
        assert_eq!(headers[3..5], [HEADERS, END_STREAM | END_HEADERS]);
        assert_eq!(
            headers_of(headers),
            [(":authority".into(), "localhost".into()), ("a".into(), "b".into())]
        );
    }

    #[test]
    fn invalid_frames_end_the_connection() {
        let pending = frame(HEADERS, 0, &[]);
        for frames in [
            vec![pending.clone(), frame(0, 0, b"data")],
            vec![pending.clone(), pending],
            vec![frame(CONTINUATION, END_HEADERS, &[])],
            vec![frame(HEADERS, END_HEADERS | PADDED, &[9, 0])],
            vec![frame(HEADERS, END_HEADERS, &[0xff, 0xff, 0xff])],
            vec![vec![0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0]],
        ] {
            assert!(read(&frames, 64).is_err(), "{frames:?}");
        }
    }

    #[test]
    fn a_frame_and_a_header_block_have_a_largest_size() {
        let data = |bytes| read(&[frame(0, 0, &vec![0; bytes])], 1 << 20);
        assert_eq!(data(PAYLOAD_MAX).unwrap().len(), FRAME_HEADER_BYTES + PAYLOAD_MAX);
        assert!(data(PAYLOAD_MAX + 1).is_err());
        // A block that goes on must not grow for ever.
        let pending = |bytes: usize| {
            let block = vec![0; bytes];
            let kinds = [HEADERS].into_iter().chain(std::iter::repeat(CONTINUATION));
            let frames = kinds.zip(block.chunks(PAYLOAD_MAX));
            let frames: Vec<Vec<u8>> = frames.map(|(kind, part)| frame(kind, 0, part)).collect();
            read(&frames, 1 << 20)
        };
        assert!(pending(HEADERS_MAX).unwrap().is_empty());
        let error = pending(HEADERS_MAX + 1).unwrap_err();
        assert!(error.to_string().contains("too many headers"), "{error}");
    }

    /// The server reads the block as a single frame, so a block that needs two is refused.
    #[test]
    fn a_block_that_does_not_fit_into_a_frame_is_refused() {
        // A literal: its kind, the name and its length, the value and its length of three bytes.
        let written = |bytes: usize| {
            let value = vec![b'v'; bytes - 6];
            let mut block = vec![0, 1, b'a'];
            block.extend(loona_hpack::encoder::encode_integer(value.len(), 7));
            block.extend(value);
            assert_eq!(block.len(), bytes);
            let (front, back) = block.split_at(bytes / 2);
            let frames = [frame(HEADERS, 0, front), frame(CONTINUATION, END_HEADERS, back)];
            read(&frames, 1 << 20)
        };
        assert_eq!(written(PAYLOAD_MAX).unwrap().len(), FRAME_HEADER_BYTES + PAYLOAD_MAX);
        let error = written(PAYLOAD_MAX + 1).unwrap_err();
        assert!(error.to_string().contains("too many headers"), "{error}");
    }

    proptest! {
        #[test]
        fn random_frames_do_not_panic(frames in prop::collection::vec((0_u8..12, any::<u8>(), prop::collection::vec(any::<u8>(), 0..60)), 0..8)) {
            let frames: Vec<Vec<u8>> = frames.iter().map(|(kind, flags, payload)| frame(*kind, *flags, payload)).collect();
            let _ = read(&frames, 11);
        }
    }
}
