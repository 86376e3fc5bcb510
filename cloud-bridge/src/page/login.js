// The login form: takes the token of a login link (`/#token=TOKEN`), and keeps the view that the address asks for.

const form = document.forms[0];

function look() {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token) {
    // It must not stay to be read.
    history.replaceState(null, '', '/');
    form.elements.token.value = token;
    form.requestSubmit();
  } else if (location.hash) {
    // A redirect without a fragment keeps that of the request.
    form.action = `/login${location.hash}`;
  }
}

// A link that is opened over this page changes the fragment alone: the browser loads nothing.
window.addEventListener('hashchange', look);
look();
