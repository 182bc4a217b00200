// A stream of events that never shows a gap or an event twice: resumed by sequence number, checked frame by frame.
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 20_000;
const SETTLED_MS = 5000;

// Close codes after which trying again changes nothing.
const FINAL = { 4401: "You are signed out.", 4403: "You may no longer read this.", 4404: "This stream is gone." };

export function waitFor(attempt, random = Math.random) {
  const whole = Math.min(FIRST_WAIT_MS * 2 ** attempt, LONGEST_WAIT_MS);
  return whole / 2 + (whole / 2) * random();
}

export class Stream {
  // handlers: onEvents(events), onReset(snapshot), onState({ isOpen, retryAt, final })
  constructor(name, after, handlers, { Socket = WebSocket, base = location } = {}) {
    Object.assign(this, { name, seq: after, handlers, Socket, attempt: 0, retryAt: null, isOpen: false, isOver: false });
    this.origin = `${base.protocol === "https:" ? "wss" : "ws"}://${base.host}`;
  }

  get url() {
    return `${this.origin}/ws/streams/${this.name}?after=${this.seq}`;
  }

  open() {
    if (this.isOver || (this.socket && this.socket.readyState <= 1)) return;
    clearTimeout(this.timer);
    this.retryAt = null;
    const socket = (this.socket = new this.Socket(this.url));
    socket.onopen = () => {
      this.isOpen = true;
      this.settled = setTimeout(() => (this.attempt = 0), SETTLED_MS);
      this.tell();
    };
    socket.onmessage = (message) => this.socket === socket && this.take(JSON.parse(message.data));
    socket.onclose = (event) => this.socket === socket && this.closed(event.code);
  }

  take(frame) {
    if ("reset" in frame) {
      this.seq = frame.seq;
      this.handlers.onReset(frame.reset);
      return;
    }
    if (frame.seq <= this.seq) return;
    if (frame.seq !== this.seq + 1) return this.restart();
    this.seq = frame.seq;
    this.handlers.onEvents([frame]);
  }

  // A gap: what is missing is asked for again from the last number that was seen.
  restart() {
    this.socket.onclose = null;
    this.socket.close();
    this.closed(0);
  }

  closed(code) {
    clearTimeout(this.settled);
    this.isOpen = false;
    if (FINAL[code]) {
      this.isOver = true;
      return this.tell(FINAL[code]);
    }
    const wait = waitFor(this.attempt++);
    this.retryAt = Date.now() + wait;
    this.timer = setTimeout(() => this.open(), wait);
    this.tell();
  }

  retryNow() {
    if (this.isOpen || this.isOver) return;
    this.socket = null;
    this.open();
  }

  tell(final = null) {
    this.handlers.onState({ isOpen: this.isOpen, retryAt: this.retryAt, final });
  }
}
