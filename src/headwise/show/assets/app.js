/*! headwise, from sources c21c8b7ddc4479627a1a16567073b9a60765f3d6abd3f1b0934df7195a0b1c1b

preact 11.2.0 (MIT)

The MIT License (MIT)

Copyright (c) 2015-present Jason Miller

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
*/
"use strict";(()=>{var w=["part","done","failed","cancelled"],c=[...crypto.getRandomValues(new Uint8Array(8))].map(e=>e.toString(16).padStart(2,"0")).join(""),r=async(e,n,a)=>{let t;try{t=await fetch(n,{method:e,credentials:"same-origin",...a===void 0?{}:{body:JSON.stringify(a),headers:{"content-type":"application/json"}}})}catch{throw new headwise.Refused("The app does not answer: it was stopped, or is being started.",null,null,0)}if(t.ok)return t;let s=await t.json().catch(()=>({}));throw new headwise.Refused(s.error??`the app answered ${t.status}`,s.hint??null,s.where??null,t.status)},i=new Set,d=new Set,o=null,h=(e,n)=>{if(i.add(e),d.add(n),!o){o=new EventSource(`/api/events?tab=${c}`);for(let t of w)o.addEventListener(t,s=>{let u=JSON.parse(s.data);for(let p of i)p({kind:t,data:u})});let a=t=>()=>d.forEach(s=>s(t));o.addEventListener("open",a(!0)),o.addEventListener("error",a(!1))}return()=>{i.delete(e),d.delete(n)}},f=async(e,n)=>{let a=URL.createObjectURL(await(await r("GET",e)).blob()),t=document.createElement("a");t.setAttribute("href",a),t.setAttribute("download",n),t.click(),setTimeout(()=>URL.revokeObjectURL(a),1e4)},g={tab:c,get:async e=>(await r("GET",e)).json(),post:async(e,n)=>(await r("POST",e,n)).json(),cancel:e=>{r("DELETE",`/api/jobs/${e}`).catch(()=>{})},bytes:async e=>{let n=await r("GET",e);return{shape:(n.headers.get("x-shape")??"").split(",").map(Number),data:new Uint8Array(await n.arrayBuffer())}},listen:h,address:{read:()=>location.pathname+location.search,go:(e,n)=>n==="push"?history.pushState(null,"",e):history.replaceState(null,"",e),listen:e=>(addEventListener("popstate",e),()=>removeEventListener("popstate",e)),whole:e=>location.origin+e},copy:e=>navigator.clipboard.writeText(e),save:f},l=document.getElementById("headwise");l&&headwise.mount(l,{kind:"headwise-app"},{server:g});})();
