/**
 * What a device keeps, in IndexedDB. A charge and the final bytes of its check-in are stored in one strict transaction,
 * and only then handed out for sending.
 *
 * Some browsers cut the database off in the background: it is opened anew for every transaction, and never inside of one
 * is anything awaited but the database itself.
 */

import { Refusal } from "../refusal.js";
import type { Bytes } from "../wire/bytes.js";
import type { SignedTask } from "../wire/signed-task.js";

/** A device as member of one task's crowd. */
export interface Member {
  /** Name of the task in the ledger. */
  readonly account: string;
  readonly server: string;
  readonly task: string;
  /** Fingerprint of the operator's key. */
  readonly operator: string;
  readonly taskHash: string;
  readonly incarnation: number;
  readonly signed: SignedTask;
  /** The device's signing key, as PKCS#8. */
  readonly secret: Bytes;
  readonly publicKey: Bytes;
  readonly state: "joining" | "joined" | "withdrawn";
  readonly paused: boolean;
  readonly code: string;
  readonly device: string;
  readonly token: string;
  /** The owner's own ε; null or missing: the task's. */
  readonly epsilon?: number | null;
}

/** What the owner decided for all tasks: ε and δ of all together at most. */
export interface Limit {
  readonly name: "cap";
  readonly epsilon: number;
  readonly delta: number;
}

/** What a device has seen of its server, and remembers of its work. */
export interface Facts {
  readonly account: string;
  /** Newest version seen; -1 at first. */
  readonly version: number;
  /** Version from which the last release that was used had started; -1 at first. */
  readonly contributed: number;
  /** Number on the newest receipt; 0 at first. */
  readonly number: number;
  readonly contacts: number;
  readonly steps: number;
  /** Makes names of rows say nothing to anybody else. */
  readonly salt: Bytes;
  /** First number that no sample has. */
  readonly following: number;
  /** Hash over which sample has which number. */
  readonly numbering: string;
  /** Parameters of the newest check-out, to predict without a network. */
  readonly parameters: Float32Array | null;
}

/** A row that is kept for learning. */
export interface KeptRow {
  readonly account: string;
  /** Number of the sample. */
  readonly sample: number;
  readonly row: Float32Array;
  /** What it is mapped to, as the model sees it. */
  readonly target: number;
}

/** A name that was given to a sample; it stays when the row is gone. */
export interface Sample {
  readonly account: string;
  readonly name: string;
  readonly sample: number;
}

export interface StoredEntry {
  readonly number: number;
  readonly raw: string;
  readonly samples: Bytes;
  readonly hash: Bytes;
}

/** A check-in that was charged and of which nobody knows yet whether it arrived. */
export interface Unsettled {
  readonly key: string;
  readonly account: string;
  readonly body: Bytes;
  readonly version: number;
  /** What the device remembers if it is used. */
  readonly contacts: number;
  readonly steps: number;
  /** Place in the order of charges. */
  readonly order: number;
}

interface Tables {
  entries: StoredEntry;
  unsettled: Unsettled;
  members: Member;
  facts: Facts;
  rows: KeptRow;
  samples: Sample;
  owner: Limit;
}
type Table = keyof Tables;

const KEYS: Record<Table, string | string[]> = {
  entries: "number",
  unsettled: "key",
  members: "account",
  facts: "account",
  rows: ["account", "sample"],
  samples: ["account", "name"],
  owner: "name",
};
const FORM = 2;

/** Asks for one thing inside of a transaction. */
export interface Within {
  get<T extends Table>(table: T, key: IDBValidKey): Promise<Tables[T] | undefined>;
  all<T extends Table>(table: T, first?: IDBValidKey, last?: IDBValidKey): Promise<Tables[T][]>;
  put<T extends Table>(table: T, value: Tables[T]): void;
  add<T extends Table>(table: T, value: Tables[T]): void;
  remove(table: Table, key: IDBValidKey): void;
}

export class Store {
  constructor(readonly name = "crowdml") {}

  /** Run one transaction; what it has put is on disk once this returns, or nothing of it is. */
  async run<Result>(tables: Table[], mode: "readonly" | "readwrite", work: (within: Within) => Promise<Result>) {
    const db = await this.open();
    try {
      const transaction = db.transaction(tables, mode, { durability: "strict" });
      const ended = new Promise<void>((resolve, reject) => {
        transaction.oncomplete = () => resolve();
        transaction.onabort = () => reject(lost(transaction.error));
      });
      ended.catch(() => undefined);
      let result: Result;
      try {
        result = await work(withinOf(transaction));
      } catch (error) {
        try {
          transaction.abort();
        } catch {
          // it has ended by itself
        }
        throw error instanceof DOMException ? lost(error) : error; // whatever the database says of a broken transaction
      }
      await ended;
      return result;
    } finally {
      db.close();
    }
  }

  /** Read one entry of a table. */
  async get<T extends Table>(table: T, key: IDBValidKey): Promise<Tables[T] | undefined> {
    return this.run([table], "readonly", (within) => within.get(table, key));
  }

  /** Read a table, or what of it lies between two keys. */
  async all<T extends Table>(table: T, first?: IDBValidKey, last?: IDBValidKey): Promise<Tables[T][]> {
    return this.run([table], "readonly", (within) => within.all(table, first, last));
  }

  private open(): Promise<IDBDatabase> {
    return new Promise((resolve, reject) => {
      let request: IDBOpenDBRequest;
      try {
        request = indexedDB.open(this.name, FORM);
      } catch (error) {
        return reject(lost(error as DOMException)); // as some browsers do in a private window
      }
      request.onupgradeneeded = () => {
        const { result } = request;
        for (const [table, keyPath] of Object.entries(KEYS))
          if (!result.objectStoreNames.contains(table)) result.createObjectStore(table, { keyPath });
      };
      request.onsuccess = () => resolve(request.result);
      request.onerror = () => reject(lost(request.error));
      request.onblocked = () => reject(lost(null));
    });
  }
}

function withinOf(transaction: IDBTransaction): Within {
  const asked = <Value>(request: IDBRequest): Promise<Value> =>
    new Promise((resolve, reject) => {
      request.onsuccess = () => resolve(request.result as Value);
      request.onerror = () => reject(lost(request.error));
    });
  return {
    get: (table, key) => asked(transaction.objectStore(table).get(key)),
    all: (table, first, last) => {
      const range = first === undefined ? null : IDBKeyRange.bound(first, last ?? first);
      return asked(transaction.objectStore(table).getAll(range));
    },
    put: (table, value) => void transaction.objectStore(table).put(value),
    add: (table, value) => void transaction.objectStore(table).add(value),
    remove: (table, key) => void transaction.objectStore(table).delete(key),
  };
}

function lost(error: DOMException | null): Refusal {
  const why = error?.name === "QuotaExceededError" ? "there is no space left" : (error?.message ?? "it was cut off");
  return new Refusal(
    "unsupported",
    `this browser's storage cannot be used (${why}): nothing was sent; reload the page`,
  );
}

/** What this tab does as the writer, one thing after the other. */
const queues = new Map<string, Promise<unknown>>();

/** Run something as the one writer of this browser: in this tab one after the other, beside another tab not at all. */
export async function exclusively<Result>(name: string, work: () => Promise<Result>): Promise<Result> {
  const turn = async (): Promise<Result> =>
    await navigator.locks.request(name, { ifAvailable: true }, (lock) => {
      if (!lock) throw new Refusal("busy", "another tab of this browser is the device now: it goes on there");
      return work();
    });
  const done = (queues.get(name) ?? Promise.resolve()).then(turn, turn);
  queues.set(name, done);
  return done;
}
