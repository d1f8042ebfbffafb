/** The browser's passkeys (WebAuthn), with the JSON forms that the server sends and reads. */

type Json = Record<string, unknown>;

interface Descriptor {
  type: "public-key";
  id: string;
  transports?: AuthenticatorTransport[];
}

type CreationOptions = Omit<PublicKeyCredentialCreationOptions, "challenge" | "user" | "excludeCredentials"> & {
  challenge: string;
  user: { id: string; name: string; displayName: string };
  excludeCredentials?: Descriptor[];
};

/** Returns whether this browser has passkeys on this page: it needs HTTPS or localhost. */
export const hasPasskeys = () => "credentials" in navigator && "PublicKeyCredential" in globalThis;

/** Makes a passkey by the server's options. Returns null if the person cancelled. */
export function createPasskey(options: Json): Promise<Json | null> {
  const { challenge, user, excludeCredentials, ...rest } = options as unknown as CreationOptions;
  const publicKey = {
    ...rest,
    challenge: bytesOf(challenge),
    user: { ...user, id: bytesOf(user.id) },
    excludeCredentials: descriptors(excludeCredentials),
  };
  return answered(() => navigator.credentials.create({ publicKey }));
}

/** Shows a passkey to the server. Returns null if the person cancelled. */
export function getPasskey(options: Json): Promise<Json | null> {
  const { challenge, allowCredentials, ...rest } = options as {
    challenge: string;
    allowCredentials?: Descriptor[];
  };
  const publicKey = { ...rest, challenge: bytesOf(challenge), allowCredentials: descriptors(allowCredentials) };
  return answered(() => navigator.credentials.get({ publicKey }));
}

async function answered(call: () => Promise<Credential | null>): Promise<Json | null> {
  try {
    return toJson((await call()) as PublicKeyCredential | null);
  } catch (error) {
    // The browser does not say whether the person cancelled or the time ran out.
    if (error instanceof DOMException && ["NotAllowedError", "AbortError"].includes(error.name)) return null;
    if (error instanceof DOMException && error.name === "InvalidStateError")
      throw new Error("This device or password manager has a passkey of this account already.", { cause: error });
    throw error;
  }
}

function toJson(credential: PublicKeyCredential | null): Json | null {
  if (!credential) return null;
  const { response } = credential as {
    response: Partial<AuthenticatorAttestationResponse & AuthenticatorAssertionResponse>;
  };
  const fields = ["clientDataJSON", "attestationObject", "authenticatorData", "signature", "userHandle"] as const;
  const sent = fields
    .map((name) => [name, response[name]] as const)
    .filter(([, value]) => value instanceof ArrayBuffer);
  return {
    id: credential.id,
    rawId: textOf(credential.rawId),
    type: credential.type,
    response: Object.fromEntries(sent.map(([name, value]) => [name, textOf(value as ArrayBuffer)])),
    clientExtensionResults: {},
  };
}

const descriptors = (known: Descriptor[] = []) => known.map((one) => ({ ...one, id: bytesOf(one.id) }));

function bytesOf(text: string): Uint8Array<ArrayBuffer> {
  const binary = atob(text.replaceAll("-", "+").replaceAll("_", "/"));
  return Uint8Array.from(binary, (character) => character.charCodeAt(0));
}

function textOf(buffer: ArrayBuffer): string {
  const binary = Array.from(new Uint8Array(buffer), (byte) => String.fromCharCode(byte)).join("");
  return btoa(binary).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
