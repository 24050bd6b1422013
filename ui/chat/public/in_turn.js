// Lets the page's connections begin in the order in which the page wanted them.
//
// A page that is opened in a conversation connects twice within milliseconds: first to none, then to
// that conversation. Each connection asks for its cookie first, and closes the other when it comes.
// Where the first cookie came later than the second, as it may on a busy machine, the connection to
// no conversation closed the one that was wanted, and the page waited for good. So whoever asks for
// a cookie waits until the one before has been read.
(() => {
  const fetched = window.fetch;
  let before = Promise.resolve();
  window.fetch = (resource, options) => {
    const ask = () => fetched.call(window, resource, options);
    if (!String(resource?.url ?? resource).endsWith("/set-session-cookie")) return ask();
    const answer = before.then(ask);
    before = answer.then((given) => given.clone().text()).catch(() => "");
    return answer;
  };
})();
