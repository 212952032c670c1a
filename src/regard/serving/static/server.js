// Requests to the server, and the problems of failed ones: a sentence, and the time until the next try.

class Problem extends Error {
  constructor(kind, message, { wait = null, code = "" } = {}) {
    super(message);
    Object.assign(this, { kind, wait, code });
  }
}

const KEY = "regard.key";

function storedKey() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null; // a browser without storage
  }
}

async function problemOf(answer) {
  const body = await answer.json().catch(() => null),
    code = body?.error?.code ?? "",
    said = body?.error?.message ?? `status ${answer.status}`,
    after = Number(answer.headers.get("retry-after")),
    wait = Number.isFinite(after) && after > 0 ? after : 2;
  switch (answer.status) {
    case 401:
      return new Problem("key", said, { code });
    case 429:
      return new Problem("busy", "The server is busy.", { wait, code });
    case 503:
      if (code === "loading") return new Problem("loading", "The server is opening its models.", { wait, code });
      if (code === "draining") return new Problem("stopping", "The server is stopping.", { wait, code });
      if (code === "worker_stopped")
        return new Problem("refused", "The model has stopped; the server's log says why.", { code });
      if (!code) return new Problem("gone", "The server does not answer.", { wait, code });
      return new Problem("busy", "The server has no memory left for this.", { wait, code });
    case 504:
      if (!code) return new Problem("gone", "The server does not answer.", { wait, code });
      return new Problem("slow", "The server took too long.", { code });
    case 502: // from a proxy whose server is gone, like 503 and 504 without a code of the server
      return new Problem("gone", "The server does not answer.", { wait, code });
    case 500:
      return new Problem("fault", "Something went wrong on the server.", { code });
    default:
      return new Problem("refused", `The server refuses this: ${said}`, { code });
  }
}

// Send a request; it ends with an answer, a refusal or a time-out.
async function send(path, options, signal) {
  const key = storedKey(),
    stop = new AbortController(),
    timer = setTimeout(() => stop.abort("late"), 1000 * (LIMITS.seconds + 5)),
    leave = () => stop.abort();
  signal?.addEventListener("abort", leave);
  if (signal?.aborted) leave();
  try {
    const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
    const answer = await fetch(path, {
      ...options,
      headers,
      signal: stop.signal,
      cache: "no-store",
      credentials: "omit",
    });
    if (!answer.ok) throw await problemOf(answer);
    return answer;
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    // The server reports its own time-outs: if it stays silent for longer, it is gone.
    if (stop.signal.aborted) throw new Problem("gone", "The server does not answer.", { wait: 2 });
    throw new Problem("gone", "The server does not answer.", { wait: 2 });
  } finally {
    clearTimeout(timer);
    signal?.removeEventListener("abort", leave);
  }
}

// Send lone surrogates, which a broken paste may contain, as U+FFFD.
function asJson(table) {
  const body = JSON.stringify(table, (_, value) =>
    typeof value === "string" ? (value.toWellFormed?.() ?? value) : value,
  );
  return { method: "POST", headers: { "content-type": "application/json" }, body };
}

// Return the body of an answer; if it breaks off half-way, the server went away.
async function bodyOf(answer, signal) {
  try {
    return await answer.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Problem("gone", "The server went away while it answered.", { wait: 2 });
  }
}

async function ask(route, table, signal) {
  return bodyOf(await send(`v1/${route}`, asJson(table), signal), signal);
}

async function upload(route, file, fields, signal) {
  const body = new FormData();
  for (const [name, value] of Object.entries(fields))
    if (value !== null && value !== undefined) body.append(name, value);
  body.append("pictures", file, "picture");
  return bodyOf(await send(`v1/${route}`, { method: "POST", body }, signal), signal);
}

async function listModels() {
  return (await bodyOf(await send("v1/models", { method: "GET" }))).models;
}

// Tell whether some models are still loading; false if a proxy blocks the request.
async function isLoading() {
  try {
    const answer = await fetch("readyz", { cache: "no-store", credentials: "omit" });
    return Object.values((await answer.json()).models ?? {}).includes("loading");
  } catch {
    return false;
  }
}

// Yield the events of a streamed answer.
async function* follow(route, table, signal) {
  const answer = await send(`v1/${route}`, asJson({ ...table, stream: true }), signal),
    reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "",
    ended = false;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      rest += value;
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const event of events) {
        const name = /^event: (.*)$/m.exec(event)?.[1],
          data = JSON.parse(/^data: (.*)$/m.exec(event)?.[1] ?? "null");
        if (name === "error") throw new Problem("fault", data?.error?.message ?? "Something went wrong on the server.");
        ended ||= name === "result";
        yield { name, data };
      }
    }
  } catch (error) {
    if (error instanceof Problem || signal?.aborted) throw error;
    throw new Problem("gone", "The server went away while it answered.", { wait: 2 });
  }
  if (!ended && !signal?.aborted) throw new Problem("gone", "The server went away while it answered.", { wait: 2 });
}
