import { isRedisUrl } from "./redis-connection.ts";

describe("REDIS_URL", () => {
  test.each([
    "redis://127.0.0.1",
    "redis://cache.example:6380/3",
    "redis://[::1]:6379/",
    "redis://:p%40ss%2Fword@cache.example",
    "rediss://gateway:secret@cache.example:6380",
    "redis://a:1,redis://b:2,redis://c:3",
    "rediss://gateway:secret@a:1/,rediss://b:2/",
    "redis://a/0,redis://b/0",
    "sentinel://a",
    "sentinel://:secret@a:26379,b:26379/shop",
    "sentinel://a,b,[::1]:26380/shop/3",
  ])("may be %s", (url) => {
    expect(isRedisUrl(url)).toBe(true);
  });

  test.each([
    "",
    "127.0.0.1:6379",
    "http://cache.example",
    "redis://",
    "redis:///3",
    "redis://cache.example:70000",
    "redis://cache.example/three",
    "redis://cache.example/3/4",
    "redis://cache.example/0?commandTimeout=100000",
    "redis://:50%@cache.example",
    "redis://a,",
    "redis://a,rediss://b",
    "redis://a,sentinel://b/shop",
    "redis://a/1,redis://b/1", // a cluster has no numbered databases
    "sentinel://a,redis://b",
    "sentinel:///shop",
    "sentinel://a/shop/three",
  ])("may not be %j", (url) => {
    expect(isRedisUrl(url)).toBe(false);
  });
});
