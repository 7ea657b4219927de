/** The times that both ends of a stream of updates rely on. */

/**
 * How long the gateway uses one stream of updates before it opens the next, which may lead to another replica.
 *
 * It must stay below `connectionGraceMs`: when the service ends an old connection, the streams on it must have ended by
 * themselves, because an update on a broken stream may or may not have happened.
 */
export const updateStreamLifeMs = 8_000;

/** How long the service lets the calls on a connection finish once the connection has reached its maximum age. */
export const connectionGraceMs = 15_000;

/**
 * How long a service that stops still takes updates on a stream after it has said so: they may be on their way. What
 * arrives later is not written.
 */
export const drainingUpdatesMs = 2_000;
