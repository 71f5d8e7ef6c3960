// A page among others of its folder. In a frame that has no rights it cannot go to them by itself: it tells the page
// around it which one was asked for, and that decides.
if (parent !== window) {
  document.addEventListener('click', (event) => {
    const link = event.target.closest('a[href$=".html"]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    parent.postMessage({ page: link.getAttribute('href') }, '*');
  });
}
